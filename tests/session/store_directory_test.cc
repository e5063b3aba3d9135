#include "session/store_directory.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>

#include "engine/sha256.h"
#include "session/sealed_value.h"
#include "session/storage_key.h"
#include "tests/session/store_samples.h"
#include "tests/support/temporary_folder.h"

namespace cairn::session {
namespace {

using test::TemporaryFolder;

StatusCode open_code(const std::string& path, bool create = true) {
  return SessionStore::open(path, {.create_if_missing = create}).status().code();
}

std::string format_text(int reader_version) {
  const std::string body = "cairn store\nformat " + std::to_string(reader_version) + "\nreader " +
                           std::to_string(reader_version) +
                           "\nstore 000102030405060708090a0b0c0d0e0f\n";
  const auto digest = engine::sha256(std::as_bytes(std::span(body)));
  return body + "sha256 " + engine::hex(digest) + "\n";
}

// Runs `body` in a child process that tells when it is ready and then lives until it is killed.
template <class Body>
pid_t start_child(Body body) {
  int ready[2];
  EXPECT_EQ(pipe(ready), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    const auto kept = body();
    const char byte = 'r';
    if (write(ready[1], &byte, 1) == 1) pause();
    _exit(0);
  }
  char byte = 0;
  EXPECT_EQ(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  close(ready[1]);
  return pid;
}

TEST(StoreDirectory, is_private_to_its_user) {
  const TemporaryFolder folder;
  ASSERT_EQ(open_code(folder / "deep/store"), StatusCode::kOk);
  struct stat info = {};
  ASSERT_EQ(stat((folder / "deep/store").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  // A directory that the host made beforehand is made private.
  std::filesystem::create_directory(folder / "made");
  ASSERT_EQ(chmod((folder / "made").c_str(), 0755), 0);
  ASSERT_EQ(open_code(folder / "made"), StatusCode::kOk);
  ASSERT_EQ(stat((folder / "made").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST(StoreDirectory, a_missing_store_is_not_made_unasked) {
  const TemporaryFolder folder;
  EXPECT_EQ(open_code(folder / "store", false), StatusCode::kNotFound);
  EXPECT_FALSE(std::filesystem::exists(folder / "store"));
  EXPECT_EQ(open_code(folder.path().string(), false), StatusCode::kNotFound);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(StoreDirectory, other_files_are_left_alone) {
  const TemporaryFolder folder;
  test::write_file(folder / "notes.txt", "mine");
  EXPECT_EQ(open_code(folder.path().string()), StatusCode::kInvalidArgument);
  EXPECT_EQ(open_code(folder / "notes.txt"), StatusCode::kInvalidArgument);
  EXPECT_EQ(test::read_file(folder / "notes.txt"), "mine");
  EXPECT_EQ(open_code(""), StatusCode::kInvalidArgument);
}

TEST(StoreDirectory, a_second_opener_in_this_process_is_told_so) {
  const TemporaryFolder folder;
  const auto store = test::open_store(folder / "store");
  const Status status = SessionStore::open(folder / "store").status();
  EXPECT_EQ(status.code(), StatusCode::kBusy);
  EXPECT_NE(status.message().find("this process"), std::string::npos) << status.to_string();
}

TEST(StoreDirectory, a_second_process_is_told_the_owners_pid) {
  const TemporaryFolder folder;
  const pid_t owner = start_child([&] { return StoreDirectory::open(folder / "store", true); });
  const Status status = SessionStore::open(folder / "store").status();
  EXPECT_EQ(status.code(), StatusCode::kBusy);
  EXPECT_NE(status.message().find("pid " + std::to_string(owner)), std::string::npos)
      << status.to_string();
  // However the owner ends, the store is free.
  kill(owner, SIGKILL);
  waitpid(owner, nullptr, 0);
  EXPECT_EQ(open_code(folder / "store"), StatusCode::kOk);
}

TEST(StoreDirectory, an_unreadable_directory_is_an_io_error) {
  const TemporaryFolder folder;
  ASSERT_EQ(open_code(folder / "store"), StatusCode::kOk);
  ASSERT_EQ(chmod(folder.path().c_str(), 0755), 0);
  const pid_t child = fork();
  if (child == 0) {
    // The super-user may read everything, so become nobody; others take their own rights away.
    if (geteuid() == 0 ? setuid(65534) != 0 : chmod((folder / "store").c_str(), 0) != 0) _exit(99);
    _exit(static_cast<int>(StoreDirectory::open(folder / "store", true).status().code()));
  }
  int status = 0;
  waitpid(child, &status, 0);
  chmod((folder / "store").c_str(), 0700);
  EXPECT_EQ(WEXITSTATUS(status), static_cast<int>(StatusCode::kIoError));
}

TEST(StoreDirectory, a_newer_format_is_refused_with_its_version) {
  const TemporaryFolder folder;
  ASSERT_EQ(open_code(folder / "store"), StatusCode::kOk);
  test::write_file(folder / "store/FORMAT", format_text(7));
  const Status status = SessionStore::open(folder / "store").status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_NE(status.message().find("version 7"), std::string::npos) << status.to_string();
}

TEST(StoreDirectory, a_newer_header_is_refused_where_format_is_lost) {
  const TemporaryFolder folder;
  {
    const test::ProbedStore probed = test::open_probed(folder / "store");
    StoreHeader header = probed.store->header();
    header.format_version = header.reader_version = 7;
    probed.storage->put_raw(Family::kMeta, std::string(kHeaderKey),
                            *seal_record(Family::kMeta, kHeaderKey, encode(header)));
  }
  std::filesystem::remove(folder / "store/FORMAT");
  EXPECT_EQ(open_code(folder / "store"), StatusCode::kUnsupported);
}

TEST(StoreDirectory, a_lost_or_damaged_format_file_is_written_anew) {
  const TemporaryFolder folder;
  ASSERT_EQ(open_code(folder / "store"), StatusCode::kOk);
  const std::string format = test::read_file(folder / "store/FORMAT");
  std::filesystem::remove(folder / "store/FORMAT");
  EXPECT_EQ(open_code(folder / "store"), StatusCode::kOk);
  EXPECT_EQ(test::read_file(folder / "store/FORMAT"), format);
  for (std::size_t i = 0; i < format.size(); i += 13) {
    std::string damaged = format;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    test::write_file(folder / "store/FORMAT", damaged);
    EXPECT_EQ(open_code(folder / "store"), StatusCode::kOk) << i;
    EXPECT_EQ(test::read_file(folder / "store/FORMAT"), format);
  }
}

TEST(StoreDirectory, a_lost_or_foreign_database_is_corrupt) {
  const TemporaryFolder folder;
  ASSERT_EQ(open_code(folder / "store"), StatusCode::kOk);
  ASSERT_EQ(open_code(folder / "other"), StatusCode::kOk);
  std::filesystem::remove_all(folder / "store/db");
  EXPECT_EQ(open_code(folder / "store"), StatusCode::kCorrupt);
  std::filesystem::remove_all(folder / "store/db");
  std::filesystem::rename(folder / "other/db", folder / "store/db");
  EXPECT_EQ(open_code(folder / "store"), StatusCode::kCorrupt);
}

TEST(StoreDirectory, counts_the_allocated_bytes_of_every_file) {
  const TemporaryFolder folder;
  Result<StoreDirectory> directory = StoreDirectory::open(folder / "store", true);
  ASSERT_TRUE(directory.ok());
  const std::int64_t before = *directory->bytes_on_disk();
  std::filesystem::create_directories(folder / "store/db");
  test::write_file(folder / "store/db/file", std::string(1 << 20, 'x'));
  sync();  // some file systems allocate late
  EXPECT_GE(*directory->bytes_on_disk() - before, 1 << 20);
  EXPECT_LE(*directory->bytes_on_disk() - before, (1 << 20) + (64 << 10));
}

}  // namespace
}  // namespace cairn::session
