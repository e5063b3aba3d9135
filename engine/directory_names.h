// What lies in a directory. Not std::filesystem's iterators: libstdc++'s end the process where
// there is no memory for an entry.
#ifndef CAIRN_ENGINE_DIRECTORY_NAMES_H_
#define CAIRN_ENGINE_DIRECTORY_NAMES_H_

#include <string>
#include <vector>

#include "cairn/status.h"

namespace cairn::engine {

// The names in it, in no order, without "." and "..". Fails with kNotFound, kIoError.
Result<std::vector<std::string>> names_in(const std::string& directory);

// Removes the directory with the files in it; what cannot be removed stays. Needs no memory.
void remove_with_files(const std::string& directory) noexcept;

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_DIRECTORY_NAMES_H_
