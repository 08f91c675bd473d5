// Parses the beginning of a GGUF file and reads all that its header offers: for random and fuzzed bytes, in buffers of
// exactly their size, where a sanitizer sees every byte read too far.
#pragma once
#include <cstring>
#include <span>
#include <vector>

#include "base/error.h"
#include "check.h"
#include "gguf/parse.h"
#include "gguf/shards.h"
#include "gguf/sniff.h"

namespace pllm::gguf {

inline uint64_t sink = 0;  // so that no read is optimized away

inline void read_all(const Value& value) {
  if (value.type == ValueType::array) {
    for_each_item(value, read_all);
    return;
  }
  for (const uint8_t byte : value.bytes) sink += byte;
}

template <class Get>
void tolerant(Get get) {
  try {
    get();
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::bad_file && *error.what() != 0);
  }
}

inline void read_header(const Header& header, uint64_t file_size) {
  const Metadata& m = header.metadata;
  for (const Metadata::Entry& entry : m.entries()) {
    read_all(entry.value);
    tolerant([&, k = entry.key] { sink += uint64_t(m.integer(k).value_or(0)); });
    tolerant([&, k = entry.key] { sink += m.number(k).has_value(); });
    tolerant([&, k = entry.key] { sink += m.boolean(k).value_or(false); });
    tolerant([&, k = entry.key] { sink += m.string(k).value_or("").size(); });
    tolerant([&, k = entry.key] { sink += m.numbers(k).size(); });
    tolerant([&, k = entry.key] { sink += m.strings(k).size(); });
    tolerant([&, k = entry.key] { sink += m.array_size(k); });
  }
  tolerant([&] { sink += uint64_t(split_info(m).count); });
  for (const Tensor& t : header.tensors) {
    sink += uint64_t(t.name.size());
    CHECK(t.n_bytes > 0 && t.offset <= file_size && t.n_bytes <= file_size - t.offset);
  }
}

// True if the file's header was accepted; then it was read.
inline bool accepted(std::span<const uint8_t> content) {
  const std::vector<uint8_t> exact(content.begin(), content.end());  // its end is the end of the allocation
  if (!has_magic(exact)) {
    CHECK(!identify(exact).what.empty());
    return false;
  }
  // Half of the file says that it is not enough, or the same as all of it.
  const std::vector<uint8_t> half(exact.begin(), exact.begin() + ptrdiff_t(exact.size() / 2));
  bool half_accepted = false, half_refused = false;
  try {
    parse(half, exact.size());
    half_accepted = true;
  } catch (const Incomplete& more) {
    CHECK(more.n_bytes > half.size() && more.n_bytes <= exact.size());
  } catch (const Error&) {
    half_refused = true;
  }
  try {
    read_header(parse(exact, exact.size()), exact.size());
    CHECK(!half_refused);
    return true;
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::bad_file || error.kind() == ErrorKind::unsupported_model);
    CHECK(!error.hint().empty());
    CHECK(!half_accepted);
    return false;
  }
}

}  // namespace pllm::gguf
