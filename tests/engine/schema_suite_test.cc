// The public JSON-Schema-Test-Suite: what it says of the supported keywords, and that the others
// are refused by name. Debian's package has draft 7, of which the lists of `items` are read as
// prefixItems; CAIRN_SCHEMA_SUITE names another folder, such as tests/draft2020-12 of the suite.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/support/released_tokenizer.h"
#include "tests/support/schema_text.h"

namespace cairn::engine {
namespace {

constexpr char kDebianFolder[] = "/usr/share/json-schema-test-suite/tests/draft7";

std::string suite_folder() {
  const char* given = std::getenv("CAIRN_SCHEMA_SUITE");
  return given != nullptr ? given : kDebianFolder;
}

// Keywords that parse_json_schema supports, as files of the suite are named.
const std::set<std::string> kSupportedFiles = {"additionalProperties",
                                               "allOf",
                                               "anyOf",
                                               "boolean_schema",
                                               "const",
                                               "default",
                                               "anchor",
                                               "definitions",
                                               "defs",
                                               "dependentRequired",
                                               "dependentSchemas",
                                               "format",
                                               "if-then-else",
                                               "maxProperties",
                                               "minProperties",
                                               "multipleOf",
                                               "not",
                                               "patternProperties",
                                               "propertyNames",
                                               "enum",
                                               "exclusiveMaximum",
                                               "exclusiveMinimum",
                                               "items",
                                               "maxItems",
                                               "maxLength",
                                               "maximum",
                                               "minItems",
                                               "minLength",
                                               "minimum",
                                               "oneOf",
                                               "pattern",
                                               "properties",
                                               "prefixItems",
                                               "ref",
                                               "required",
                                               "type",
                                               "additionalItems"};

// Draft 7's lists of `items` in the words of 2020-12, references to them included.
void modernise(JsonValue& value) {
  JsonValue* items = value.find("items");
  const bool has_list = items != nullptr && items->is(JsonValue::Kind::kArray);
  for (JsonMember& member : value.members) {
    if (has_list && member.key == "items") {
      member.key = "prefixItems";
    } else if (has_list && member.key == "additionalItems") {
      member.key = "items";
    } else if (member.key == "$ref" && member.value.text == "#/items/0") {
      member.value.text = "#/prefixItems/0";
    }
    modernise(member.value);
  }
  for (JsonValue& item : value.items) modernise(item);
}

// In draft 7 $ref hides its siblings.
constexpr char kDraft7Only[] = "ref: ref overrides any sibling keywords";

// 1.0 and 1e0 are the integer 1 to a schema; the automaton reads integers in their plain form only.
void write_integers_plainly(JsonValue& value) {
  if (value.is(JsonValue::Kind::kNumber) && value.text.ends_with(".0")) {
    value.text.resize(value.text.size() - 2);
  }
  for (JsonMember& member : value.members) write_integers_plainly(member.value);
  for (JsonValue& item : value.items) write_integers_plainly(item);
}

TEST(SchemaSuite, says_the_same_of_all_supported_keywords) {
  const std::string folder = suite_folder();
  ASSERT_TRUE(std::filesystem::is_directory(folder))
      << "no suite in " << folder << ": install json-schema-test-suite or set CAIRN_SCHEMA_SUITE";
  int n_equal = 0, n_as_any_of = 0, n_groups = 0;
  std::map<std::string, int> refused;  // by the keyword that a refusal names
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    const std::string file = entry.path().stem().string();
    auto groups = parse_json(tests::read_file(entry.path().string()));
    ASSERT_TRUE(groups.ok()) << file << groups.status().to_string();
    for (JsonValue& group : groups->items) {
      JsonValue schema = *group.find("schema");
      modernise(schema);
      const std::string text = to_python_json(schema);
      const std::string name = file + ": " + group.find("description")->text;
      if (name == kDraft7Only) continue;
      const auto compiled = tests::SchemaText::compile(text);
      if (!compiled.ok()) {
        EXPECT_EQ(compiled.status().code(), StatusCode::kUnsupported)
            << name << ": " << compiled.status().to_string();
        const std::string message(compiled.status().message());
        const std::size_t quote = message.find('\'');
        ASSERT_NE(quote, std::string::npos) << message;
        const std::string what =
            message.substr(quote + 1, message.find('\'', quote + 1) - quote - 1);
        EXPECT_NE(text.find(what), std::string::npos) << name << ": " << message;
        ++refused[what];
        continue;
      }
      ++n_groups;
      EXPECT_TRUE(kSupportedFiles.contains(file) || text.find(file) == std::string::npos)
          << name << " should be refused";
      for (JsonValue& test : group.find("tests")->items) {
        JsonValue& instance = *test.find("data");
        write_integers_plainly(instance);
        const std::string json = to_python_json(instance);
        const bool accepted = compiled->is_possible() && compiled->accepts(json);
        const bool is_valid = test.find("valid")->boolean;
        // That more than one of oneOf holds is not seen: stated.
        if (file == "oneOf" && accepted && !is_valid) {
          ++n_as_any_of;
          continue;
        }
        EXPECT_EQ(accepted, is_valid) << name << ": " << test.find("description")->text << ": "
                                      << json << " against " << text;
        n_equal += accepted == is_valid;
      }
    }
  }
  std::printf("%s: %d schemas, %d documents judged alike, %d of oneOf as anyOf; refused:\n",
              folder.c_str(), n_groups, n_equal, n_as_any_of);
  for (const auto& [what, n] : refused) std::printf("  %s %d\n", what.c_str(), n);
  EXPECT_GT(n_equal, 225);
  EXPECT_LT(n_as_any_of, 10);
}

}  // namespace
}  // namespace cairn::engine
