// What a cairn::StoreReader handle shares: a read-only view of a store as of one instant.
#ifndef CAIRN_SESSION_STORE_READER_H_
#define CAIRN_SESSION_STORE_READER_H_

#include <memory>
#include <string>
#include <utility>

#include "cairn/store.h"
#include "session/records.h"
#include "session/storage.h"
#include "session/store_directory.h"

namespace cairn::session {

// Safe from any thread.
class StoreReaderState {
 public:
  // Fails as StoreReader::open.
  static Result<std::shared_ptr<StoreReaderState>> open(const std::string& path,
                                                        const StoreSecret& secret);

  const std::string& path() const { return path_; }
  const DirectoryView& directory() const { return directory_; }
  const StoreHeader& header() const { return header_; }
  Storage& storage() const { return *storage_; }

 private:
  StoreReaderState(std::string path, DirectoryView directory, StoreHeader header,
                   std::unique_ptr<Storage> storage)
      : path_(std::move(path)),
        directory_(std::move(directory)),
        header_(std::move(header)),
        storage_(std::move(storage)) {}

  std::string path_;
  DirectoryView directory_;
  StoreHeader header_;
  std::unique_ptr<Storage> storage_;
};

}  // namespace cairn::session

#endif  // CAIRN_SESSION_STORE_READER_H_
