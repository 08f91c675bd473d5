// Merge rules for SentencePiece BPE vocabularies, which GGUF stores as scores only.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace pllm::gguf {

struct Merge {
  uint32_t left, right;  // token ids
};

// Every split of every token into two tokens of the vocabulary, best score of the whole token first; equal scores in
// the order of the whole token's id, then of (left, right). Splits fall between UTF-8 characters; unknown, control and
// byte tokens (types 2, 3, 6) are not split. Of equal tokens the last one's id counts. Same rules, in the same order,
// as Hugging Face transformers derives for Llama and Gemma.
// Error bad_file: lists of different lengths, or a score that is not a number.
std::vector<Merge> spm_merges(std::span<const std::string_view> tokens, std::span<const float> scores,
                              std::span<const int32_t> types);

}  // namespace pllm::gguf
