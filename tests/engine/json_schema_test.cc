// Which schemas are accepted and which texts meet them.
#include "engine/json_schema.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/schema_text.h"

namespace cairn::engine {
namespace {

using tests::SchemaText;

struct Case {
  std::string schema;
  std::vector<std::string> met, not_met;
};

void check(const Case& each) {
  const auto text = SchemaText::compile(each.schema);
  ASSERT_TRUE(text.ok()) << each.schema << ": " << text.status().to_string();
  for (const std::string& json : each.met) {
    EXPECT_TRUE(text->accepts(json)) << each.schema << " should be met by " << json;
  }
  for (const std::string& json : each.not_met) {
    EXPECT_FALSE(text->accepts(json)) << each.schema << " should not be met by " << json;
  }
}

TEST(JsonSchema, keywords_say_which_texts_meet_them) {
  const std::vector<Case> cases = {
      {"true",
       {"null", "[]", "{\"a\":1}", "\"x\"", "-1.5e-3"},
       {"", "nul", "[", "01", "1.", "'x'"}},
      {"{}", {"{}"}, {"{,}"}},
      {R"({"type":["string","null"]})", {"null", "\"\""}, {"1", "nul"}},
      {R"({"type":"integer"})",
       {"0", "-1", "12345678901234567890"},
       {"-0", "1.0", "1e3", "007", "+1"}},
      {R"({"type":"integer","minimum":-3,"exclusiveMaximum":12})",
       {"-3", "0", "11", "9"},
       {"-4", "12", "100", "-30", "1.5"}},
      {R"({"type":"number","minimum":0,"maximum":1})",
       {"0", "1", "0.5", "1.0", "0.000001"},
       {"1.1", "-0.1", "2", "1e-1"}},
      {R"({"type":"number","exclusiveMinimum":0.25})", {"0.26", "3"}, {"0.25", "0.250", "-1"}},
      {R"({"type":"string","minLength":2,"maxLength":3})",
       {"\"ab\"", "\"日本語\"", "\"\\ud83d\\ude00x\"", "\"\\n\\u00e9\""},
       {"\"a\"", "\"abcd\"", "\"\\ud83d\\ude00\"", "\"\\ud83dx\"", "\"a\nb\""}},
      {R"({"type":"string","maxLength":100000})",
       {"\"" + std::string(100000, 'x') + "\""},
       {"\"" + std::string(100001, 'x') + "\""}},
      {R"({"type":"string","pattern":"^a.c$","maxLength":3})",
       {"\"abc\"", "\"a\\\"c\""},
       {"\"ac\""}},
      {R"({"type":"string","format":"date"})",
       {"\"2024-02-29\"", "\"2000-02-29\"", "\"1999-12-31\""},
       {"\"2023-02-29\"", "\"1900-02-29\"", "\"2024-04-31\"", "\"2024-13-01\"", "\"24-01-01\""}},
      {R"({"format":"time"})",
       {"\"23:59:59Z\"", "\"00:00:00.5+01:30\"", "7"},
       {"\"24:00:00Z\"", "\"12:00:00\""}},
      {R"({"format":"date-time"})",
       {"\"2024-02-29T01:02:03-08:00\""},
       {"\"2024-02-30T01:02:03Z\""}},
      {R"({"format":"uuid"})",
       {"\"2eb8aa08-AA98-11ea-b4aa-73b441d16380\""},
       {"\"2eb8aa08aa9811eab4aa73b441d16380\""}},
      {R"({"enum":["a",1,null,[1,{"x":2}],0.5]})",
       {"\"a\"", "1", "null", "[1, {\"x\": 2}]", "0.5"},
       {"\"b\"", "true", "[1]", "[1,{\"x\":2,\"y\":1}]", "2"}},
      {R"({"const":{"b":1,"a":[]}})", {"{\"a\":[],\"b\":1}", "{\"b\":1,\"a\":[ ]}"}, {"{\"b\":1}"}},
      {R"({"enum":["ab","abc","b"],"minLength":3})", {"\"abc\""}, {"\"ab\"", "\"b\""}},
      {R"({"enum":[1,2.5,7],"type":"integer","maximum":6})", {"1"}, {"2.5", "7"}},
      {R"({"type":"array","prefixItems":[{"type":"null"},{"type":"boolean"}],"items":{"type":"integer"},"minItems":1,"maxItems":4})",
       {"[null]", "[null,true,3]", "[ null , false , 1 , 2 ]"},
       {"[]", "[true]", "[null,true,true]", "[null,true,1,2,3]", "[null,]"}},
      {R"({"type":"array","items":false})", {"[]", "[ ]"}, {"[1]"}},
      {R"({"properties":{"a":{"type":"integer"},"b":true},"required":["a"]})",
       {"{\"a\":1}", "{\"b\":[],\"a\":1}", "{\"c\":2,\"a\":1}", "[]", "{\n\t\"a\": 1\n}"},
       {"{}", "{\"a\":\"x\"}", "{\"a\":1,\"a\":2}", "{\"c\":2,\"a\":1,\"c\":3}", "{\"a\":1,}"}},
      {R"({"type":"object","properties":{"a":true,"ab":true},"additionalProperties":false})",
       {"{}", "{\"ab\":1}", "{\"ab\":1,\"a\":2}"},
       {"{\"abc\":1}", "{\"\":1}", "{\"a\":1,\"a\":1}"}},
      {R"({"type":"object","additionalProperties":{"type":"integer"},"properties":{"s":{"type":"string"}}})",
       {"{\"x\":1,\"s\":\"\"}", "{\"sx\":1}"},
       {"{\"s\":1}", "{\"x\":\"\"}"}},
      {R"({"type":"object","required":["k"],"additionalProperties":{"type":"integer"}})",
       {"{\"k\":1}"},
       {"{\"k\":null}", "{}"}},
      {R"({"anyOf":[{"type":"integer"},{"type":"string","maxLength":1}]})",
       {"5", "\"x\""},
       {"\"xy\"", "null"}},
      {R"({"properties":{"k":true},"required":["k"],"oneOf":[{"properties":{"k":{"const":"a"},"x":{"type":"integer"}}},{"properties":{"k":{"const":"b"},"x":{"type":"null"}}}]})",
       {"{\"k\":\"a\",\"x\":1}", "{\"x\":null,\"k\":\"b\"}"},
       {"{\"k\":\"a\",\"x\":null}", "{\"x\":1,\"k\":\"b\"}", "{\"k\":\"c\"}"}},
      {R"({"allOf":[{"minimum":2},{"maximum":4}],"type":"integer"})", {"2", "4"}, {"1", "5"}},
      {R"({"$defs":{"t":{"type":"object","properties":{"v":{"type":"integer"},"kids":{"type":"array","items":{"$ref":"#/$defs/t"}}},"required":["v"],"additionalProperties":false}},"$ref":"#/$defs/t"})",
       {"{\"v\":1,\"kids\":[{\"v\":2},{\"kids\":[],\"v\":3}]}"},
       {"{\"v\":1,\"kids\":[{}]}", "{\"v\":1,\"kids\":{\"v\":1}}"}},
      {R"({"properties":{"a~b/c%d":{"type":"null"},"r":{"$ref":"#/properties/a~0b~1c%25d"}}})",
       {"{\"r\":null}"},
       {"{\"r\":1}"}},
      {R"({"$id":"https://example.test/s","$defs":{"n":{"type":"null"}},"properties":{"a":{"$ref":"https://example.test/s#/$defs/n"}}})",
       {"{\"a\":null}"},
       {"{\"a\":1}"}},
      {R"({"$ref":"#n","$defs":{"d":{"$anchor":"n","type":"null"}}})", {"null"}, {"1"}},
      {R"({"patternProperties":{"^n_":{"type":"null"},"_i$":{"type":"integer"}},"additionalProperties":{"type":"string"},"properties":{"a_i":{"minimum":3}}})",
       {R"({"n_":null,"n_x":null,"y_i":1,"a_i":3,"z":""})", "{}"},
       {R"({"n_x":1})", R"({"y_i":null})", R"({"n_i":null})", R"({"a_i":2})", R"({"z":1})",
        R"({"n_x":null,"n_x":null})"}},
      {R"({"patternProperties":{"^[ab]$":{"type":"null"}},"additionalProperties":false})",
       {R"({"a":null,"b":null})", R"({"b":null})"},
       {R"({"c":null})", R"({"a":null,"a":null})", R"({"a":null,"b":null,)"}},
      {R"({"patternProperties":{"^[a-z]{2}$":true},"additionalProperties":false,"minProperties":2})",
       {R"({"ab":1,"ac":2})", R"({"zz":1,"aa":2,"az":3})"},
       {R"({"ab":1})", R"({"ab":1,"ab":2})", R"({"abc":1,"ab":2})"}},
      {R"({"propertyNames":{"maxLength":2,"pattern":"^[a-c]"},"minProperties":1,"maxProperties":2})",
       {R"({"a":1})", R"({"ab":1,"c":2})"},
       {"{}", R"({"d":1})", R"({"abc":1})", R"({"a":1,"b":2,"c":3})"}},
      {R"({"propertyNames":{"enum":["x","y"]},"additionalProperties":{"type":"null"}})",
       {R"({"x":null,"y":null})", "{}"},
       {R"({"z":null})", R"({"x":1})"}},
      {R"({"type":"object","properties":{"a":true,"b":true,"c":true},"required":["c"],"maxProperties":2,"additionalProperties":false})",
       {R"({"c":1})", R"({"a":1,"c":2})", R"({"c":1,"b":2})"},
       {R"({"a":1,"b":2,)", R"({"a":1})", R"({"c":1,"a":2,"b":3})"}},
      {R"({"dependentRequired":{"card":["address","name"]}})",
       {"{}", R"({"name":1})", R"({"card":1,"address":2,"name":3})", "[]"},
       {R"({"card":1})", R"({"address":1,"card":2})"}},
      {R"({"dependentSchemas":{"a":{"properties":{"b":{"type":"null"}},"required":["b"]}}})",
       {R"({"b":1})", R"({"a":1,"b":null})"},
       {R"({"a":1})", R"({"b":1,"a":1})"}},
      {R"({"not":{"type":["string","array"]}})", {"1", "null", "{}"}, {"\"\"", "[]"}},
      {R"({"type":"string","not":{"enum":["a","b"]}})",
       {"\"\"", "\"ab\"", "\"c\""},
       {"\"a\"", "\"b\"", "1"}},
      {R"({"type":"number","not":{"const":1}})", {"0", "1.5", "10", "-1"}, {"1", "1.0", "1.00"}},
      {R"({"type":"number","not":{"type":"integer"}})", {"0.5", "-3.25"}, {"1", "2.0"}},
      {R"({"not":{"const":{"a":[1]}},"type":"object"})",
       {"{}", R"({"a":[2]})", R"({"a":[]})", R"({"a":[1],"b":2})", R"({"b":[1]})"},
       {R"({"a":[1]})"}},
      {R"({"type":"array","not":{"maxItems":1}})", {"[1,2]"}, {"[]", "[1]"}},
      {R"({"not":{"not":{"type":"null"}}})", {"null"}, {"1"}},
      {R"({"type":"object","properties":{"kind":{"enum":["a","b"]},"x":true},"required":["kind"],"if":{"properties":{"kind":{"const":"a"}}},"then":{"required":["x"]},"else":{"properties":{"x":{"type":"null"}}}})",
       {R"({"kind":"a","x":1})", R"({"kind":"b"})", R"({"kind":"b","x":null})",
        R"({"x":1,"kind":"a"})"},
       {R"({"kind":"a"})", R"({"kind":"b","x":1})", R"({"x":1,"kind":"b"})"}},
      {R"({"if":true,"then":{"type":"null"}})", {"null"}, {"1"}},
      {R"({"if":{"type":"null"}})", {"null", "1"}, {}},
      {R"({"type":"integer","multipleOf":7,"minimum":1})", {"7", "14", "700007"}, {"0", "1", "15"}},
      {R"({"type":"number","multipleOf":5})", {"0", "-15", "100"}, {"2", "5.5", "-1"}},
      {R"({"uniqueItems":true,"maxItems":1})", {"[1]"}, {"[1,1]"}},
      {R"({"format":"email"})",
       {"\"a@b.org\"", "\"first.last+tag@sub.example.com\""},
       {"\"a\"", "\"a@b\"", "\"@b.org\"", "\"a@-b.org\""}},
      {R"({"format":"hostname"})",
       {"\"localhost\"", "\"a-b.example.org\""},
       {"\"\"", "\"-a\"", "\"a_b\"", "\"a..b\""}},
      {R"({"format":"ipv4"})", {"\"127.0.0.1\""}, {"\"256.1.1.1\"", "\"1.2.3\"", "\"01.2.3.4\""}},
      {R"({"format":"ipv6"})",
       {"\"::1\"", "\"2001:db8::ff00:42:8329\"", "\"::ffff:1.2.3.4\"", "\"1:2:3:4:5:6:7:8\""},
       {"\"1:2:3:4:5:6:7\"", "\":::\"", "\"1::2::3\"", "\"12345::\""}},
      {R"({"format":"uri"})",
       {"\"https://example.org/a?b=c#d\"", "\"urn:isbn:1\"", "\"mailto:a@b\"",
        "\"http://u:p@h:80/%20\""},
       {"\"//h/a\"", "\"a b:c\"", "\"http://h/%2\"", "\"/a\""}},
      {R"({"format":"duration"})",
       {"\"P1Y2M3D\"", "\"PT5M\"", "\"P2W\"", "\"P1DT12H\""},
       {"\"P\"", "\"PT\"", "\"1D\"", "\"P1S\"", "\"P1YT\""}},
      {R"({"format":"json-pointer"})", {"\"\"", "\"/a~1b/0\""}, {"\"a\"", "\"/~2\""}},
      {R"({"title":"t","description":"d","default":1,"examples":[1],"$comment":"c","x-order":1,"type":"null"})",
       {"null"},
       {"1"}},
      {R"({"type":"object","properties":{"q\"é\n":{"type":"null"}},"additionalProperties":false})",
       {"{\"q\\\"é\\n\":null}"},
       {"{\"q\\\"\\u00e9\\n\":null}"}},
  };
  for (const Case& each : cases) check(each);
}

TEST(JsonSchema, white_space_is_bounded) {
  const auto text = SchemaText::compile(R"({"type":"array","items":{"type":"integer"}})");
  ASSERT_TRUE(text.ok());
  EXPECT_TRUE(text->accepts("[1, 2]"));
  EXPECT_TRUE(text->accepts("[\n" + std::string(64, ' ') + "1\n]"));
  EXPECT_FALSE(text->accepts("[\n" + std::string(65, ' ') + "1\n]"));
  EXPECT_FALSE(text->accepts("[  1]"));
  EXPECT_FALSE(text->accepts("[\n\n1]"));
  EXPECT_FALSE(text->accepts(" [1]"));
  EXPECT_FALSE(text->accepts("[1] "));
}

TEST(JsonSchema, nesting_is_bounded_and_can_always_be_finished) {
  const auto text = SchemaText::compile(R"({"type":"array","items":{"$ref":"#"}})");
  ASSERT_TRUE(text.ok());
  const auto nested = [](std::size_t n) { return std::string(n, '[') + std::string(n, ']'); };
  EXPECT_TRUE(text->accepts(nested(kMaxDepth)));
  EXPECT_FALSE(text->accepts(nested(kMaxDepth + 1)));
}

TEST(JsonSchema, strings_never_look_like_markup) {
  const auto text = SchemaText::compile("true");
  ASSERT_TRUE(text.ok());
  EXPECT_FALSE(text->accepts("\"<|DSML| calls>\""));
  EXPECT_FALSE(text->accepts("\"</|DSML| parameter>\""));
  EXPECT_TRUE(text->accepts("\"\\u003c|DSML| calls>\""));
  EXPECT_TRUE(text->accepts("\"<|DSM L| </div>\""));
}

TEST(JsonSchema, a_schema_that_nothing_meets_is_seen) {
  for (const std::string schema :
       {"false", R"({"type":"string","minLength":3,"maxLength":2})", R"({"enum":[]})",
        R"({"type":"integer","minimum":5,"maximum":4})",
        R"({"type":"object","properties":{"a":false},"required":["a"]})",
        R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})",
        R"({"allOf":[{"type":"string"},{"type":"null"}]})",
        R"({"$ref":"#/$defs/n","$defs":{"n":false}})",
        R"({"type":"array","items":{"$ref":"#"},"minItems":1})",
        R"({"type":"string","pattern":"^ab$","maxLength":1})",
        R"({"type":"object","required":["x"],"additionalProperties":false})"}) {
    const auto text = SchemaText::compile(schema);
    ASSERT_TRUE(text.ok()) << schema << text.status().to_string();
    EXPECT_FALSE(text->is_possible()) << schema;
  }
  // An optional part that nothing meets is only absent.
  check(
      {R"({"type":"object","properties":{"a":false,"b":{"type":"null"}},"additionalProperties":false})",
       {"{}", "{\"b\":null}"},
       {"{\"a\":null}"}});
}

TEST(JsonSchema, what_is_not_supported_is_named_with_its_place) {
  const std::vector<std::array<std::string, 3>> cases = {
      {R"({"not":{"items":{"type":"null"}}})", "items", "#/not"},
      {R"({"if":{"additionalProperties":{"type":"null"}},"then":false})", "additionalProperties", "#/if"},
      {R"({"properties":{"a/b":{"contains":true}}})", "contains", "#/properties/a~1b/contains"},
      {R"({"items":{"anyOf":[true,{"uniqueItems":true}]}})", "uniqueItems",
       "#/items/anyOf/1/uniqueItems"},
      {R"js({"patternProperties":{"a(?!b)":true}})js", "look-around", "#/patternProperties/a(?!b)"},
      {R"({"$defs":{"d":{"multipleOf":0.5}},"$ref":"#/$defs/d"})", "multipleOf",
       "#/$defs/d/multipleOf"},
      {R"({"type":"string","format":"idn-email"})", "idn-email", "#/format"},
      {R"({"$ref":"other.json"})", "other.json", "#/$ref"},
      {R"({"items":[true]})", "items", "#/items"},
      {R"({"prefixItems":[{"$id":"x"}]})", "$id", "#/prefixItems/0/$id"},
      {R"js({"pattern":"a(?=b)"})js", "look-around", "#/pattern"},
      {R"({"unevaluatedProperties":false})", "unevaluatedProperties", "#/unevaluatedProperties"},
      {R"({"nullable":true})", "nullable", "#/nullable"},
  };
  for (const auto& [schema, name, pointer] : cases) {
    const auto graph = parse_json_schema(std::string_view(schema), "schema");
    ASSERT_FALSE(graph.ok()) << schema;
    EXPECT_EQ(graph.status().code(), StatusCode::kUnsupported) << schema;
    const std::string message(graph.status().message());
    EXPECT_NE(message.find(name), std::string::npos) << message;
    EXPECT_NE(message.find(" at " + pointer + ":"), std::string::npos) << message;
  }
}

TEST(JsonSchema, malformed_schemas_are_refused_with_their_place) {
  const std::vector<std::array<std::string, 2>> cases = {
      {"{", "JSON"},
      {"1", "#"},
      {R"({"type":"strin"})", "#/type"},
      {R"({"type":3})", "#/type"},
      {R"({"properties":[]})", "#/properties"},
      {R"({"properties":{"a":3}})", "#/properties/a"},
      {R"({"required":"a"})", "#/required"},
      {R"({"required":[1]})", "#/required"},
      {R"({"enum":1})", "#/enum"},
      {R"({"anyOf":{}})", "#/anyOf"},
      {R"({"anyOf":[]})", "#/anyOf"},
      {R"({"minLength":-1})", "#/minLength"},
      {R"({"maxItems":1.5})", "#/maxItems"},
      {R"({"minimum":"1"})", "#/minimum"},
      {R"js({"pattern":"("})js", "#/pattern"},
      {R"({"pattern":1})", "#/pattern"},
      {R"({"$ref":"#/$defs/none"})", "#/$ref"},
      {R"({"$ref":"#/%2"})", "#/$ref"},
      {R"({"$ref":1})", "#/$ref"},
      {R"({"items":{"additionalProperties":7}})", "#/items/additionalProperties"},
  };
  for (const auto& [schema, place] : cases) {
    const auto graph = parse_json_schema(std::string_view(schema), "the schema");
    ASSERT_FALSE(graph.ok()) << schema;
    EXPECT_EQ(graph.status().code(), StatusCode::kInvalidArgument) << schema;
    EXPECT_NE(graph.status().message().find(place), std::string::npos)
        << schema << graph.status().message();
    EXPECT_NE(graph.status().message().find("the schema"), std::string::npos);
  }
}

std::string repeated(const std::string& text, int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += text;
  return out;
}

TEST(JsonSchema, huge_and_deep_schemas_are_refused_in_bounded_time) {
  std::string wide = R"({"properties":{"p":true)";
  for (int i = 0; i < 300; ++i) wide += ",\"p" + std::to_string(i) + "\":true";
  wide += "}}";
  // Each of these multiplies out to a great many alternatives.
  const std::string product = R"({"allOf":[)" +
                              repeated(R"({"anyOf":[{"minimum":1},{"minimum":2}]},)", 19) +
                              R"({"anyOf":[true,{}]}]})";
  std::string chain = R"({"$ref":"#/$defs/d0","$defs":{"last":true)";
  for (int i = 0; i < 3000; ++i) {
    chain += ",\"d" + std::to_string(i) + R"js(":{"anyOf":[{"$ref":"#/$defs/)js" +
             (i == 2999 ? "last" : "d" + std::to_string(i + 1)) + R"("},{"type":"null"}]})";
  }
  chain += "}}";
  const std::vector<std::string> schemas = {
      wide,
      product,
      chain,
      repeated(R"({"items":)", 300) + "true" + repeated("}", 300),
      R"({"allOf":[)" + repeated("true,", 25'000) + "true]}",
      R"({"title":")" + std::string(2 << 20, 'x') + R"("})",
      R"({"type":"string","pattern":"a","maxLength":100000})",
  };
  for (const std::string& schema : schemas) {
    const auto text = SchemaText::compile(schema);
    ASSERT_FALSE(text.ok()) << schema.substr(0, 80);
    EXPECT_TRUE(text.status().code() == StatusCode::kUnsupported ||
                text.status().code() == StatusCode::kInvalidArgument)
        << text.status().to_string();
  }
}

}  // namespace
}  // namespace cairn::engine
