// The layout of the source tree as tests: who may include whom, which file may include which
// package, names, and calls that a library must not make. CONTRIBUTING.md explains the rules; the
// tables below are the rules.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace fs = std::filesystem;

const fs::path kRoot = CAIRN_SOURCE_DIR;

struct SourceFile {
  std::string path;  // from the root, with slashes
  std::string text;
};

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

bool is_code(const fs::path& path) {
  static const std::set<std::string> kExtensions = {".h", ".cc", ".c", ".cu", ".cuh"};
  return kExtensions.contains(path.extension().string());
}

const std::vector<SourceFile>& sources() {
  static const std::vector<SourceFile> kSources = [] {
    std::vector<SourceFile> files;
    for (const char* top :
         {"include", "kernels", "engine", "session", "bindings", "examples", "tests"}) {
      for (const auto& entry : fs::recursive_directory_iterator(kRoot / top)) {
        if (!entry.is_regular_file() || !is_code(entry.path())) continue;
        files.push_back(
            {fs::relative(entry.path(), kRoot).generic_string(), read_file(entry.path())});
      }
    }
    return files;
  }();
  return kSources;
}

bool is_in(std::string_view path, std::string_view directory) {
  return path.starts_with(directory) && path.substr(directory.size()).starts_with('/');
}

// The files of the library proper: what a host process runs.
bool is_library(std::string_view path) {
  return is_in(path, "include") || is_in(path, "kernels") || is_in(path, "engine") ||
         is_in(path, "session") || is_in(path, "bindings/c");
}

// Line by line: the included name and whether it is in quotes.
struct Include {
  std::string name;
  bool quoted;
};

std::vector<Include> includes_of(const SourceFile& file) {
  static const std::regex kInclude(R"((?:^|\n)[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"])");
  std::vector<Include> includes;
  for (std::sregex_iterator it(file.text.begin(), file.text.end(), kInclude), end; it != end;
       ++it) {
    includes.push_back({(*it)[2], (*it)[1] == "\""});
  }
  return includes;
}

// The code without comments, string and character literals, each replaced by a space.
std::string code_of(const std::string& text) {
  std::string code;
  for (std::size_t i = 0; i < text.size();) {
    const std::string_view rest = std::string_view(text).substr(i);
    std::size_t length = 0;
    if (rest.starts_with("//")) {
      length = std::min(rest.find('\n'), rest.size());
    } else if (rest.starts_with("/*")) {
      length = std::min(rest.find("*/"), rest.size() - 2) + 2;
    } else if (rest.starts_with("R\"")) {
      const std::string close = ")" + std::string(rest.substr(2, rest.find('(') - 2)) + "\"";
      length = std::min(rest.find(close), rest.size() - close.size()) + close.size();
    } else if (rest[0] == '"' || (rest[0] == '\'' && (i == 0 || !std::isalnum(text[i - 1])))) {
      for (length = 1; length < rest.size() && rest[length] != rest[0];) {
        length += rest[length] == '\\' ? 2 : 1;
      }
      length = std::min(length + 1, rest.size());
    }
    code += length == 0 ? rest[0] : ' ';
    i += std::max<std::size_t>(length, 1);
  }
  return code;
}

// Arrows point down only. A directory not named here (tests) may include everything.
struct Direction {
  std::string directory;
  std::vector<std::string> may_include;
};
const std::vector<Direction> kDirections = {
    {"include/cairn", {"cairn"}},
    {"kernels", {"cairn", "kernels"}},
    {"engine", {"cairn", "kernels", "engine"}},
    {"session", {"cairn", "engine", "session"}},
    {"bindings/c", {"cairn", "engine", "bindings/c"}},
    {"bindings/cli", {"cairn", "engine", "session", "bindings/cli", "examples"}},
    {"examples", {"cairn"}},
};

TEST(Layout, includes_point_down_only) {
  for (const SourceFile& file : sources()) {
    for (const Direction& direction : kDirections) {
      if (!is_in(file.path, direction.directory)) continue;
      for (const Include& include : includes_of(file)) {
        const bool ours = include.quoted || is_in(include.name, "cairn");
        const bool sibling = include.name.find('/') == std::string::npos;
        const bool allowed =
            std::any_of(direction.may_include.begin(), direction.may_include.end(),
                        [&](const std::string& above) { return is_in(include.name, above); });
        EXPECT_TRUE(!ours || allowed || (sibling && direction.directory == "examples"))
            << file.path << " includes " << include.name;
      }
    }
  }
}

// The examples are what a user of the C API writes.
TEST(Layout, examples_use_the_c_header_only) {
  for (const SourceFile& file : sources()) {
    if (!is_in(file.path, "examples")) continue;
    for (const Include& include : includes_of(file)) {
      if (is_in(include.name, "cairn")) {
        EXPECT_EQ(include.name, "cairn/cairn.h") << file.path;
      }
    }
  }
}

// But for the one that is there for those who have Boost.Asio.
TEST(Layout, public_headers_include_the_standard_library_only) {
  const std::regex standard("[a-z_]+");
  for (const SourceFile& file : sources()) {
    if (!is_in(file.path, "include") || file.path == "include/cairn/asio.h") continue;
    for (const Include& include : includes_of(file)) {
      if (include.quoted) continue;
      EXPECT_TRUE(std::regex_match(include.name, standard)) << file.path << ": " << include.name;
    }
  }
}

// Each package stops in the files that may include it; tests may include any. Patterns are regular
// expressions.
struct Package {
  std::string name, header, allowed_files;
};
const std::vector<Package> kPackages = {
    {"RocksDB", "rocksdb/.*", "session/rocksdb_[a-z]+\\.(cc|h)"},
    {"zstd", "zstd.*\\.h", "session/compression\\.cc"},
    {"Protobuf", "(google/protobuf/.*|.*\\.pb\\.h)", "session/records\\.cc"},
    {"xxHash", "xxh.*\\.h", "session/[a-z_]+\\.cc"},
    {"spdlog", "spdlog/.*", "engine/log\\.cc"},
    {"Boost.Asio", "boost/asio.*", "(engine/runtime\\.cc|include/cairn/asio\\.h)"},
    {"Boost.JSON", "boost/json.*", "engine/[a-z_]+\\.cc"},
    {"OpenSSL", "openssl/.*", "(engine/sha256|session/cipher)\\.cc"},
    {"PCRE2", "pcre2.*\\.h", "engine/[a-z_]+\\.cc"},
    {"utf8proc", "utf8proc\\.h", "engine/[a-z_]+\\.cc"},
    {"CLI11", "CLI/.*", "bindings/cli/[a-z_]+\\.cc"},
    {"GoogleTest", "(gtest|gmock)/.*", "none: tests only"},
    {"intrinsics", ".*intrin\\.h|arm_neon\\.h|cpuid\\.h", "kernels/cpu/.*"},
    {"Highway", "hwy/.*", "kernels/cpu/.*"},
    {"CUDA", "cuda.*", "kernels/cuda/.*"},
};

TEST(Layout, packages_stop_where_they_should) {
  for (const Package& package : kPackages) {
    const std::regex header(package.header), allowed(package.allowed_files);
    for (const SourceFile& file : sources()) {
      if (is_in(file.path, "tests")) continue;
      for (const Include& include : includes_of(file)) {
        if (!std::regex_match(include.name, header)) continue;
        EXPECT_TRUE(std::regex_match(file.path, allowed))
            << file.path << " includes " << package.name << " (" << include.name << ")";
      }
    }
  }
}

// A library does not end its host and does not print.
TEST(Layout, the_library_neither_ends_the_process_nor_prints) {
  const std::regex forbidden(
      R"(\b(abort|exit|_exit|_Exit|quick_exit|terminate|printf|fprintf|vprintf|vfprintf|puts|fputs|)"
      R"(putchar|perror|raise)\s*\(|\b(cout|cerr|clog|stdout|stderr)\b|\bassert\s*\()");
  for (const SourceFile& file : sources()) {
    if (!is_library(file.path)) continue;
    const std::string code = code_of(file.text);
    std::smatch found;
    EXPECT_FALSE(std::regex_search(code, found, forbidden)) << file.path << " uses " << found.str();
  }
}

TEST(Layout, files_have_names_of_their_own) {
  const std::regex drawer("(^|.*[_/])(util|utils|utility|common|helper|helpers|misc)(_.*)?[.].*");
  const std::regex snake_case("[a-z0-9_]+[.](h|cc|c|cu|cuh)");
  for (const SourceFile& file : sources()) {
    EXPECT_FALSE(std::regex_match(file.path, drawer)) << file.path;
    const std::string name = fs::path(file.path).filename().string();
    EXPECT_TRUE(std::regex_match(name, snake_case)) << file.path;
  }
}

TEST(Layout, no_two_headers_share_a_name) {
  std::map<std::string, std::string> seen;
  for (const SourceFile& file : sources()) {
    if (!is_library(file.path) || !file.path.ends_with(".h")) continue;
    const auto [at, is_first] = seen.emplace(fs::path(file.path).filename().string(), file.path);
    EXPECT_TRUE(is_first) << file.path << " and " << at->second;
  }
}

// CAIRN_ENGINE_LAYER_H_ for engine/layer.h; include/ is not part of the name.
std::string guard_of(std::string path) {
  if (is_in(path, "include")) path = path.substr(std::string_view("include/").size());
  if (path == "bindings/c/cairn.h") path = "cairn.h";
  if (path == "bindings/c/cairn_raw.h") path = "cairn/cairn_raw.h";
  std::string guard = is_in(path, "cairn") ? "" : "CAIRN_";
  for (const char c : path) {
    guard += std::isalnum(static_cast<unsigned char>(c)) ? static_cast<char>(std::toupper(c)) : '_';
  }
  return guard + "_";
}

TEST(Layout, header_guards_follow_the_path) {
  for (const SourceFile& file : sources()) {
    if (!file.path.ends_with(".h")) continue;
    const std::string guard = guard_of(file.path);
    EXPECT_NE(file.text.find("#ifndef " + guard + "\n#define " + guard + "\n"), std::string::npos)
        << file.path << " should have the guard " << guard;
  }
}

TEST(Layout, files_stay_readable) {
  constexpr std::ptrdiff_t kMaxLines = 800;
  for (const SourceFile& file : sources()) {
    // The C API is one header on purpose: hosts copy it. Two thirds of it are its manual, in which
    // every field has its word.
    const std::ptrdiff_t n_allowed = file.path == "bindings/c/cairn.h" ? 1300 : kMaxLines;
    const auto n_lines = std::count(file.text.begin(), file.text.end(), '\n');
    EXPECT_LE(n_lines, n_allowed) << file.path;
  }
}

// The C ABI: header, export list and use agree.

std::set<std::string> functions_of(const char* header) {
  const std::string text = code_of(read_file(kRoot / "bindings/c" / header));
  const std::regex declaration(R"(CAIRN_API[^;(]*\b(cairn_[a-z0-9_]+)\s*\()");
  std::set<std::string> names;
  for (std::sregex_iterator it(text.begin(), text.end(), declaration), end; it != end; ++it) {
    names.insert((*it)[1]);
  }
  return names;
}

std::set<std::string> functions_of_headers() {
  std::set<std::string> names = functions_of("cairn.h");
  names.merge(functions_of("cairn_raw.h"));
  return names;
}

std::set<std::string> exported_functions() {
  const std::string text = read_file(kRoot / "bindings/c/cairn.map");
  const std::regex entry(R"(\n\s+(cairn_[a-z0-9_]+);)");
  std::set<std::string> names;
  for (std::sregex_iterator it(text.begin(), text.end(), entry), end; it != end; ++it) {
    names.insert((*it)[1]);
  }
  return names;
}

TEST(CApi, every_function_of_the_headers_is_exported_and_no_other) {
  EXPECT_EQ(functions_of_headers(), exported_functions());
  EXPECT_FALSE(functions_of("cairn.h").empty());
  EXPECT_FALSE(functions_of("cairn_raw.h").empty());
}

// Structs that begin with struct_size and so may get fields.
std::set<std::string> growing_structs() {
  const std::string text = code_of(read_file(kRoot / "bindings/c/cairn.h"));
  const std::regex definition(R"(typedef struct (cairn_\w+) \{\s*size_t struct_size;)");
  std::set<std::string> names;
  for (std::sregex_iterator it(text.begin(), text.end(), definition), end; it != end; ++it) {
    names.insert((*it)[1]);
  }
  return names;
}

TEST(CApi, every_growing_struct_is_tested_with_older_and_newer_callers) {
  const std::string test = code_of(read_file(kRoot / "tests/bindings/c_struct_size_test.c"));
  EXPECT_GT(growing_structs().size(), 15u);
  for (const std::string& name : growing_structs()) {
    const std::string row = name.ends_with("_options") ? "OPTIONS" : "RESULT";
    EXPECT_NE(test.find(row + "(" + name + ", "), std::string::npos)
        << "c_struct_size_test.c lacks " << row << "(" << name << ", ...)";
  }
}

TEST(CApi, every_growing_struct_can_be_initialised) {
  const std::string text = read_file(kRoot / "bindings/c/cairn.h");
  for (const std::string& name : growing_structs()) {
    std::string macro = name + "_INIT";
    std::transform(macro.begin(), macro.end(), macro.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    EXPECT_NE(text.find("#define " + macro + " "), std::string::npos) << macro;
  }
}

TEST(CApi, needs_nothing_and_has_the_same_layout_for_every_compiler) {
  const std::regex include(R"(#include\s*[<"]([^>"]+)[>"])");
  const std::regex unsteady(R"(\b(bool|_Bool|long|short|unsigned|time_t|enum [A-Za-z]\w*)\b)"
                            R"(|:\s*\d+\s*;|\benum\s+\w+\s*\{)");
  const std::set<std::string> allowed = {"stddef.h", "stdint.h", "cairn/cairn.h"};
  for (const char* header : {"cairn.h", "cairn_raw.h"}) {
    const std::string text = code_of(read_file(kRoot / "bindings/c" / header));
    for (std::sregex_iterator it(text.begin(), text.end(), include), end; it != end; ++it) {
      EXPECT_TRUE(allowed.contains((*it)[1])) << header << " includes " << (*it)[1];
    }
    std::smatch found;
    EXPECT_FALSE(std::regex_search(text, found, unsteady)) << header << ": " << found.str();
  }
}

TEST(CApi, stays_small_enough_to_read) { EXPECT_LT(functions_of("cairn.h").size(), 100u); }

TEST(CApi, every_function_is_used_by_a_test_or_an_example) {
  std::string callers;
  for (const SourceFile& file : sources()) {
    if (file.path.ends_with(".c")) callers += code_of(file.text);
  }
  for (const std::string& name : functions_of_headers()) {
    EXPECT_TRUE(std::regex_search(callers, std::regex("\\b" + name + "\\s*\\("))) << name;
  }
}

}  // namespace
