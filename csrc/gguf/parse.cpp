#include "gguf/parse.h"

#include <algorithm>
#include <limits>
#include <unordered_set>

#include "base/printable.h"
#include "gguf/tensor_types.h"

namespace pllm::gguf {
namespace {

constexpr uint64_t kMinKeyValueBytes = 8 + 4 + 1;        // key length, value type, smallest value
constexpr uint64_t kMinTensorInfoBytes = 8 + 4 + 4 + 8;  // name length, n_dims, type, offset
constexpr uint64_t kDefaultAlignment = 32;
constexpr uint64_t kMinAlignment = 8, kMaxAlignment = 1 << 20;
// Far beyond any model's: what costs memory for each is bounded.
constexpr uint64_t kMaxEntries = 1 << 16, kMaxTensors = 1 << 20;
constexpr const char* kDamaged = "The download was cut off or the file is damaged: download it again.";

// A tensor's place as the file states it, before it is known whether the data is there.
struct Extent {
  uint64_t offset;  // from the start of the data section
  uint64_t n_bytes;
};

uint32_t read_version(Cursor& cursor) {
  cursor.take(4);  // the magic, recognized by the caller
  const uint32_t version = cursor.read<uint32_t>();
  if (version == 2 || version == 3) return version;
  if (version == 1)
    throw Error(ErrorKind::bad_file, "this is GGUF version 1, which only the first weeks of GGUF (August 2023) used",
                "Get a newer file of this model, or convert it again.");
  if (version != 0 && (version & 0xffff) == 0)
    throw Error(ErrorKind::bad_file, "this is a big-endian GGUF file", "Get the little-endian file of this model.");
  throw Error(ErrorKind::bad_file,
              "this is GGUF version " + std::to_string(version) + "; versions 2 and 3 are supported",
              "A newer pyllamacpp may read it; if the version looks absurd, the file is damaged: download it again.");
}

void require_count(const Cursor& cursor, uint64_t count, uint64_t least_bytes, uint64_t most) {
  cursor.require_in_file(CheckedSize(count) * least_bytes);
  if (count > most) cursor.fail(std::to_string(count) + " entries; at most " + std::to_string(most) + " are allowed");
}

Metadata read_metadata(Cursor& cursor, uint64_t count) {
  require_count(cursor, count, kMinKeyValueBytes, kMaxEntries);
  Metadata metadata;
  for (uint64_t i = 0; i < count; i++) {
    cursor.set_item("metadata entry " + std::to_string(i));
    const std::string_view key = cursor.read_string();
    cursor.set_item("metadata '" + printable(key) + "'");
    const ValueType type = read_value_type(cursor);
    if (!metadata.add(key, read_value(cursor, type))) cursor.fail("the key appears twice");
  }
  return metadata;
}

uint64_t alignment_of(const Metadata& metadata) {
  const Value* value = metadata.find("general.alignment");
  if (!value) return kDefaultAlignment;
  if (value->type != ValueType::u32)
    throw Error(ErrorKind::bad_file,
                "metadata 'general.alignment' has type " + std::string(name_of(value->type)) + "; expected uint32",
                "The file was written wrongly: convert the model again.");
  const uint64_t alignment = value->as<uint32_t>();
  if (!std::has_single_bit(alignment) || alignment < kMinAlignment || alignment > kMaxAlignment)
    throw Error(ErrorKind::bad_file,
                "general.alignment is " + std::to_string(alignment) + "; expected a power of two from 8 to 1048576",
                kDamaged);
  return alignment;
}

// Bytes of a tensor's data, whole blocks along the first dimension.
uint64_t read_shape(Cursor& cursor, Tensor& tensor) {
  tensor.shape = {1, 1, 1, 1};
  const uint32_t n_dims = cursor.read<uint32_t>();
  if (n_dims > tensor.shape.size()) cursor.fail(std::to_string(n_dims) + " dimensions; at most 4 are allowed");
  tensor.n_dims = int(n_dims);
  CheckedSize n_weights = 1;
  for (int i = 0; i < tensor.n_dims; i++) {
    const uint64_t dim = cursor.read<uint64_t>();
    if (dim == 0 || dim > uint64_t(std::numeric_limits<int64_t>::max()))
      cursor.fail("dimension " + std::to_string(i) + " is " + std::to_string(dim));
    tensor.shape[i] = int64_t(dim);
    n_weights = n_weights * dim;
  }
  tensor.type_id = cursor.read<uint32_t>();
  const auto type = find_tensor_type(tensor.type_id);
  if (!type)
    throw Error(ErrorKind::unsupported_model, cursor.item() + " has unknown type id " + std::to_string(tensor.type_id),
                "A newer pyllamacpp may know it; if other tools fail too, the file is damaged: download it again.");
  tensor.type_name = type->name;
  tensor.format = format_from_gguf_id(tensor.type_id);
  if (tensor.shape[0] % type->block_weights != 0)
    cursor.fail("rows of " + std::to_string(tensor.shape[0]) + " weights are not whole " + std::string(type->name) +
                " blocks of " + std::to_string(type->block_weights));
  // Weights are counted before bytes: a count beyond 2^63 is nonsense even where the bytes would fit 64 bits.
  if (!n_weights.fits(uint64_t(std::numeric_limits<int64_t>::max()))) cursor.fail("more than 2^63 weights");
  const CheckedSize n_bytes = CheckedSize(*n_weights.value() / uint64_t(type->block_weights)) * type->block_bytes;
  if (!n_bytes.value()) cursor.fail("more than 2^64 bytes");
  return *n_bytes.value();
}

void read_tensor_infos(Cursor& cursor, uint64_t count, uint64_t alignment, Header& header,
                       std::vector<Extent>& extents) {
  require_count(cursor, count, kMinTensorInfoBytes, kMaxTensors);
  std::unordered_set<std::string_view> names;
  for (uint64_t i = 0; i < count; i++) {
    cursor.set_item("tensor entry " + std::to_string(i));
    Tensor tensor{};
    tensor.name = cursor.read_string();
    cursor.set_item("tensor '" + printable(tensor.name) + "'");
    if (!names.insert(tensor.name).second) cursor.fail("the name appears twice");
    tensor.n_bytes = read_shape(cursor, tensor);
    const uint64_t offset = cursor.read<uint64_t>();
    if (offset % alignment != 0)
      cursor.fail("offset " + std::to_string(offset) + " is not a multiple of the alignment " +
                  std::to_string(alignment));
    header.tensors.push_back(tensor);
    extents.push_back({offset, tensor.n_bytes});
  }
}

std::string quoted(const Tensor& tensor) { return "tensor '" + printable(tensor.name) + "'"; }

// Sets the tensors' offsets; `data_start` may lie past the end of a file without tensors.
void place_tensors(uint64_t file_size, CheckedSize data_start, const std::vector<Extent>& extents,
                   std::vector<Tensor>& tensors) {
  uint64_t needed = 0;
  const Tensor* outside = nullptr;
  for (size_t i = 0; i < tensors.size(); i++) {
    const auto end = (data_start + extents[i].offset + extents[i].n_bytes).value();
    if (!end)
      throw Error(ErrorKind::bad_file,
                  quoted(tensors[i]) + " ends beyond 2^64 bytes (offset " + std::to_string(extents[i].offset) + ")",
                  kDamaged);
    if (*end > file_size && !outside) outside = &tensors[i];
    needed = std::max(needed, *end);
  }
  if (outside)
    throw Error(ErrorKind::bad_file,
                "truncated: its tensors need " + std::to_string(needed) + " bytes, but the file has " +
                    std::to_string(file_size) + " bytes; the first one outside is " + quoted(*outside),
                kDamaged);
  for (size_t i = 0; i < tensors.size(); i++) tensors[i].offset = *data_start.value() + extents[i].offset;
}

void refuse_overlap(const std::vector<Tensor>& tensors) {
  std::vector<const Tensor*> order;
  order.reserve(tensors.size());
  for (const Tensor& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const Tensor* a, const Tensor* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < order.size(); i++)
    if (order[i - 1]->offset + order[i - 1]->n_bytes > order[i]->offset)
      throw Error(ErrorKind::bad_file, quoted(*order[i - 1]) + " and " + quoted(*order[i]) + " overlap", kDamaged);
}

}  // namespace

Header parse(std::span<const uint8_t> bytes, uint64_t file_size) {
  Cursor cursor(bytes, file_size);
  Header header;
  try {
    header.version = read_version(cursor);
    const uint64_t n_tensors = cursor.read<uint64_t>();
    const uint64_t n_entries = cursor.read<uint64_t>();
    header.metadata = read_metadata(cursor, n_entries);
    const uint64_t alignment = alignment_of(header.metadata);
    std::vector<Extent> extents;
    cursor.set_item("tensor index");
    read_tensor_infos(cursor, n_tensors, alignment, header, extents);
    place_tensors(file_size, CheckedSize(cursor.offset()).align_up(alignment), extents, header.tensors);
  } catch (const Error& error) {
    if (!error.hint().empty()) throw;
    throw Error(error.kind(), error.what(), kDamaged);
  }
  refuse_overlap(header.tensors);
  return header;
}

}  // namespace pllm::gguf
