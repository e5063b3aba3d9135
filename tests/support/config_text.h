// Configurations for tests: the released one, and the tiny layouts in public use, as JSON to edit.
#ifndef CAIRN_TESTS_SUPPORT_CONFIG_TEXT_H_
#define CAIRN_TESTS_SUPPORT_CONFIG_TEXT_H_

#include <boost/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "tests/support/temporary_folder.h"

namespace cairn::test {

class ConfigText {
 public:
  explicit ConfigText(const std::string& path) : root_(boost::json::parse(read_file(path))) {}

  static ConfigText released() {
    return ConfigText(std::string(CAIRN_TEST_DATA) + "/released/config.json");
  }

  // `where` is a JSON pointer to a key of an object: "/text_config/hidden_size".
  ConfigText& set(std::string_view where, boost::json::value value) {
    parent(where)[key(where)] = std::move(value);
    return *this;
  }
  ConfigText& erase(std::string_view where) {
    parent(where).erase(key(where));
    return *this;
  }
  const boost::json::value& root() const { return root_; }
  std::string text() const { return boost::json::serialize(root_); }

 private:
  static boost::json::string_view key(std::string_view where) {
    const std::string_view last = where.substr(where.rfind('/') + 1);
    return {last.data(), last.size()};
  }
  boost::json::object& parent(std::string_view where) {
    const std::size_t slash = where.rfind('/');
    if (slash == 0) return root_.as_object();
    return root_.at_pointer(boost::json::string_view(where.data(), slash)).as_object();
  }

  boost::json::value root_;
};

}  // namespace cairn::test

#endif  // CAIRN_TESTS_SUPPORT_CONFIG_TEXT_H_
