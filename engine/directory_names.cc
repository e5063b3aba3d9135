#include "engine/directory_names.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string_view>
#include <system_error>

namespace cairn::engine {
namespace {

struct Closing {
  void operator()(DIR* directory) const { closedir(directory); }
};
using OpenDirectory = std::unique_ptr<DIR, Closing>;

Status cannot_read(const std::string& directory, int error) {
  return {error == ENOENT ? StatusCode::kNotFound : StatusCode::kIoError,
          "read " + directory + ": " + std::generic_category().message(error)};
}

}  // namespace

Result<std::vector<std::string>> names_in(const std::string& directory) {
  const OpenDirectory open(opendir(directory.c_str()));
  if (!open) return cannot_read(directory, errno);
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* const entry = readdir(open.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
    errno = 0;
  }
  if (errno != 0) return cannot_read(directory, errno);
  return names;
}

void remove_with_files(const std::string& directory) noexcept {
  // A reading beside removals may miss names.
  for (int round = 0; round < 4 && rmdir(directory.c_str()) != 0; ++round) {
    const OpenDirectory open(opendir(directory.c_str()));
    if (!open) return;
    while (const dirent* const entry = readdir(open.get())) {
      (void)unlinkat(dirfd(open.get()), entry->d_name, 0);  // "." and ".." refuse
    }
  }
}

}  // namespace cairn::engine
