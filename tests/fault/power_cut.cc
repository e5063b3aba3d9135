#include "tests/fault/power_cut.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "tests/support/temporary_folder.h"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPageBytes = 4096, kSectorBytes = 512;

void put(std::string& bytes, std::size_t at, std::string_view what) {
  if (bytes.size() < at + what.size()) bytes.resize(at + what.size(), '\0');
  bytes.replace(at, what.size(), what);
}

void redo(std::string& bytes, const TapEntry& entry) {
  if (entry.call == Call::kTruncate) {
    bytes.resize(static_cast<std::size_t>(entry.at), '\0');
  } else {
    put(bytes, static_cast<std::size_t>(entry.at), entry.bytes);
  }
}

std::string parent_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

// A number below `n` that depends on nothing but the arguments.
std::size_t draw(std::uint32_t seed, std::size_t piece, std::size_t n) {
  std::seed_seq seeds = {seed, static_cast<std::uint32_t>(piece)};
  std::uint32_t drawn = 0;
  seeds.generate(&drawn, &drawn + 1);
  return drawn % n;
}

// `bytes` with each piece as it was after some of the pending changes.
void redo_pieces(std::string& bytes, const std::vector<TapEntry>& pending, std::size_t piece_bytes,
                 std::uint32_t seed) {
  const std::size_t n_states = pending.size() + 1;
  for (std::size_t i = 0; i < pending.size(); ++i) {
    const TapEntry& entry = pending[i];
    if (entry.call == Call::kTruncate) {
      if (i < draw(seed, static_cast<std::size_t>(-1), n_states)) redo(bytes, entry);
      continue;
    }
    const auto begin = static_cast<std::size_t>(entry.at), end = begin + entry.bytes.size();
    for (std::size_t at = begin; at < end;) {
      const std::size_t piece = at / piece_bytes;
      const std::size_t next = std::min(end, (piece + 1) * piece_bytes);
      if (i < draw(seed, piece, n_states)) {
        put(bytes, at, std::string_view(entry.bytes).substr(at - begin, next - at));
      }
      at = next;
    }
  }
}

// The first of the pending changes, the last of them in part.
void redo_beginning(std::string& bytes, const std::vector<TapEntry>& pending,
                    std::mt19937& random) {
  const std::size_t n_whole = random() % (pending.size() + 1);
  for (std::size_t i = 0; i < n_whole; ++i) redo(bytes, pending[i]);
  if (n_whole == pending.size() || pending[n_whole].call != Call::kWrite) return;
  TapEntry part = pending[n_whole];
  part.bytes.resize(random() % (part.bytes.size() + 1));
  redo(bytes, part);
}

}  // namespace

void PowerCut::add(const TapEntry& entry) {
  switch (entry.call) {
    case Call::kMakeDirectory:
      directories_[entry.path] = entry.number;
      add_name(entry);
      break;
    case Call::kCreate:
    case Call::kRename:
    case Call::kLink:
    case Call::kUnlink:
      add_name(entry);
      break;
    case Call::kWrite:
    case Call::kTruncate:
      files_[entry.number].pending.push_back(entry);
      break;
    case Call::kSync:
      sync(entry);
      break;
    default:
      break;
  }
}

void PowerCut::add_name(const TapEntry& entry) {
  names_.push_back({entry.call, entry.number, entry.path, entry.target});
  files_[entry.number].last_name = names_.size();
  for (const std::string& path : {entry.path, entry.target}) {
    const auto directory = directories_.find(parent_of(path));
    if (directory != directories_.end()) files_[directory->second].last_name = names_.size();
  }
}

void PowerCut::sync(const TapEntry& entry) {
  File& file = files_[entry.number];
  if (entry.failed && failed_sync_ != FailedSync::kKept) {
    if (failed_sync_ == FailedSync::kHalf) {
      redo_pieces(file.durable, file.pending, kPageBytes,
                  static_cast<std::uint32_t>(names_.size()));
    }
    file.pending.clear();
    return;
  }
  for (const TapEntry& change : file.pending) redo(file.durable, change);
  file.pending.clear();
  n_names_durable_ = std::max(n_names_durable_, file.last_name);
}

std::string PowerCut::bytes_of(const File& file, CutStyle style, std::mt19937& random) const {
  std::string bytes = file.durable, all = bytes;
  for (const TapEntry& change : file.pending) redo(all, change);
  switch (style) {
    case CutStyle::kNothing:
    case CutStyle::kNamesOnly:
      return bytes;
    case CutStyle::kEverything:
    case CutStyle::kBytesOnly:
      return all;
    case CutStyle::kBeginnings:
      redo_beginning(bytes, file.pending, random);
      return bytes;
    default:
      break;
  }
  const auto seed = static_cast<std::uint32_t>(random());
  const bool pages = style == CutStyle::kReorderedPages;
  redo_pieces(bytes, file.pending, pages ? kPageBytes : kSectorBytes, seed);
  // The size may reach the disk before the bytes do.
  if (seed % 4 == 0 && all.size() > bytes.size()) bytes.resize(all.size(), '\0');
  return bytes;
}

void PowerCut::build(const std::string& target, CutStyle style, std::mt19937& random) const {
  std::size_t n_names = names_.size();
  if (style == CutStyle::kNothing || style == CutStyle::kBytesOnly) n_names = n_names_durable_;
  if (style >= CutStyle::kBeginnings) {
    n_names = n_names_durable_ + random() % (names_.size() - n_names_durable_ + 1);
  }
  std::map<std::string, std::int64_t> tree;  // paths sort a directory before what is in it
  for (std::size_t i = 0; i < n_names; ++i) {
    const Name& name = names_[i];
    if (name.call == Call::kUnlink || name.call == Call::kRename) tree.erase(name.path);
    if (name.call == Call::kRename || name.call == Call::kLink) tree[name.target] = name.number;
    if (name.call == Call::kCreate || name.call == Call::kMakeDirectory) {
      tree[name.path] = name.number;
    }
  }
  for (const auto& [path, number] : tree) {
    const std::string where = target + path.substr(directory_.size());
    if (directories_.contains(path)) {
      fs::create_directories(where);
    } else {
      write_file(where, bytes_of(files_.at(number), style, random));
    }
  }
}

// -- records as files --

void save_record(const std::vector<TapEntry>& record, const std::string& path) {
  std::ofstream out(path, std::ios::binary);
  const auto number = [&](std::int64_t value) {
    out.write(reinterpret_cast<const char*>(&value), sizeof value);
  };
  const auto text = [&](const std::string& value) {
    number(static_cast<std::int64_t>(value.size()));
    out.write(value.data(), static_cast<std::streamsize>(value.size()));
  };
  for (const TapEntry& entry : record) {
    number(static_cast<std::int64_t>(entry.call));
    number(entry.failed);
    number(entry.number);
    number(entry.at);
    text(entry.path);
    text(entry.target);
    text(entry.bytes);
  }
}

std::vector<TapEntry> load_record(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const auto number = [&] {
    std::int64_t value = 0;
    in.read(reinterpret_cast<char*>(&value), sizeof value);
    return value;
  };
  const auto text = [&] {
    std::string value(static_cast<std::size_t>(number()), '\0');
    in.read(value.data(), static_cast<std::streamsize>(value.size()));
    return value;
  };
  std::vector<TapEntry> record;
  while (in.peek() != std::ifstream::traits_type::eof()) {
    TapEntry entry;
    entry.call = static_cast<Call>(number());
    entry.failed = number() != 0;
    entry.number = number();
    entry.at = number();
    entry.path = text();
    entry.target = text();
    entry.bytes = text();
    record.push_back(std::move(entry));
  }
  return record;
}

}  // namespace cairn::test
