// The one exception type of the core. Kinds map by name to the classes of pyllamacpp/errors.py.
#pragma once
#include <stdexcept>
#include <string>
#include <utility>

namespace pllm {

enum class ErrorKind {
  io,                 // a file cannot be opened or read
  bad_file,           // not GGUF, truncated, corrupt
  missing_tensor,     // the file is whole but lacks a tensor the model needs
  bad_shape,          // a tensor's shape contradicts the metadata
  unsupported_model,  // architecture, format or feature without an implementation here
  out_of_memory,      // does not fit, refused before allocation
  context_overflow,   // more tokens than n_ctx
  bad_value,          // a caller's argument is out of range
  internal,           // a broken invariant of ours
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message, std::string hint = {})
      : std::runtime_error(message), kind_(kind), hint_(std::move(hint)) {}
  ErrorKind kind() const { return kind_; }
  const std::string& hint() const { return hint_; }  // what the user can do about it; may be empty

 private:
  ErrorKind kind_;
  std::string hint_;
};

}  // namespace pllm
