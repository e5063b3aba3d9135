#include "engine/shard_index.h"

#include <boost/json.hpp>
#include <new>
#include <set>

#include "engine/mapped_file.h"

namespace cairn::engine {
namespace {

namespace json = boost::json;

bool is_shard_name(std::string_view name) {
  return name.ends_with(".safetensors") && name.find_first_of("/\\") == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

Result<ShardIndex> read_index(const std::string& path, const json::object& root) {
  ShardIndex index;
  const json::value* const map = root.if_contains("weight_map");
  if (map == nullptr || !map->is_object()) {
    return corrupt(path + ": weight_map is missing or not an object");
  }
  for (const auto& item : map->get_object()) {
    const json::string* const file = item.value().if_string();
    if (file == nullptr || !is_shard_name({file->data(), file->size()})) {
      return corrupt(path + ": weight_map: tensor " + std::string(item.key()) +
                     ": expected the name of a .safetensors file in the folder");
    }
    index.file_of.emplace(std::string(item.key()), std::string(file->data(), file->size()));
  }
  const json::value* const metadata = root.if_contains("metadata");
  const json::object* const fields = metadata == nullptr ? nullptr : metadata->if_object();
  const json::value* const total = fields == nullptr ? nullptr : fields->if_contains("total_size");
  if (total != nullptr) {
    json::error_code error;
    // Also takes the integral float that some writers emit.
    index.total_size = total->to_number<std::int64_t>(error);
    if (error) return corrupt(path + ": metadata.total_size is not an integer");
  }
  return index;
}

}  // namespace

std::vector<std::string> ShardIndex::files() const {
  std::set<std::string> distinct;
  for (const auto& [tensor, file] : file_of) distinct.insert(file);
  return {distinct.begin(), distinct.end()};
}

Result<ShardIndex> read_shard_index(const std::string& path) try {
  CAIRN_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path));
  json::error_code error;
  const json::value root =
      json::parse(json::string_view(file.text().data(), file.text().size()), error);
  if (error) return corrupt(path + ": not valid JSON: " + error.message());
  const json::object* const object = root.if_object();
  if (object == nullptr) return corrupt(path + ": expected a JSON object");
  return read_index(path, *object);
} catch (const std::bad_alloc&) {
  return Status(StatusCode::kOutOfMemory, path + ": out of memory while parsing");
} catch (const std::exception& e) {
  return internal_error(path + ": " + e.what());
}

}  // namespace cairn::engine
