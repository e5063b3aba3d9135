/* What a turn's options say about the message: a response format, whether tools are called. */
#include <cairn/cairn.h>

#include "c_checks.h"

static const char kTools[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"set\", \"parameters\": {\"type\": "
    "\"object\", \"properties\": {\"n\": {\"enum\": [7]}}, \"required\": [\"n\"]}}}]";

static void the_text_is_json_of_the_format(void) {
  fixture f = open_fixture("format");
  cairn_session* session = open_session(&f, "s");
  cairn_turn_options options = short_answer();
  cairn_turn* turn = NULL;
  EXPECT_OK(cairn_session_append_user(session, "1+2?", CAIRN_CSTRING, &error));
  options.response_format_json = "{\"enum\": [[1, \"two\"]]}";
  options.response_format_json_length = CAIRN_CSTRING;
  options.max_tokens = 200;
  EXPECT_OK(cairn_session_start_turn(session, &options, &turn, &error));
  const answer said = read_answer(turn, 0);
  CHECK(said.end_reason == CAIRN_END_STOP);
  CHECK(said.text[0] == '[' && strstr(said.text, "\"two\"") != NULL);
  cairn_session_destroy(&session);
  close_fixture(&f);
}

static void a_named_tool_is_called(void) {
  fixture f = open_fixture("tools");
  cairn_session* session = open_session(&f, "s");
  cairn_turn_options options = short_answer();
  cairn_turn* turn = NULL;
  EXPECT_OK(cairn_session_append_system(session, "", 0, kTools, CAIRN_CSTRING, &error));
  EXPECT_OK(cairn_session_append_user(session, "1+2?", CAIRN_CSTRING, &error));
  options.constrain_tools = 1;
  options.tool_choice = CAIRN_TOOL_CHOICE_NAMED;
  options.tool_name = "other";
  options.tool_name_length = CAIRN_CSTRING;
  EXPECT(CAIRN_NOT_FOUND, cairn_session_start_turn(session, &options, &turn, &error));
  options.tool_name = "set";
  options.max_tokens = 400;
  EXPECT_OK(cairn_session_start_turn(session, &options, &turn, &error));
  const answer said = read_answer(turn, 0);
  CHECK(said.end_reason == CAIRN_END_TOOL_CALLS);
  CHECK(strcmp(said.text, "{\"n\": 7}") == 0);
  cairn_session_destroy(&session);
  close_fixture(&f);
}

static void what_cannot_be_followed_is_refused_by_name(void) {
  fixture f = open_fixture("refusal");
  cairn_session* session = open_session(&f, "s");
  cairn_turn_options options = short_answer();
  cairn_turn* turn = NULL;
  cairn_error* refusal = NULL;
  EXPECT_OK(cairn_session_append_user(session, "1+2?", CAIRN_CSTRING, &error));
  options.response_format_json = "{\"contains\": {}}";
  options.response_format_json_length = CAIRN_CSTRING;
  CHECK(cairn_session_start_turn(session, &options, &turn, &refusal) == CAIRN_UNSUPPORTED);
  CHECK(strstr(cairn_error_message(refusal), "#/contains: keyword 'contains'") != NULL);
  cairn_error_destroy(&refusal);
  options.response_format_json = NULL;
  options.response_format_json_length = 0;
  options.tool_choice = CAIRN_TOOL_CHOICE_REQUIRED;
  EXPECT(CAIRN_INVALID_ARGUMENT, cairn_session_start_turn(session, &options, &turn, &error));
  options.tool_choice = CAIRN_TOOL_CHOICE_NAMED + 1;
  EXPECT(CAIRN_UNSUPPORTED, cairn_session_start_turn(session, &options, &turn, &error));
  CHECK(turn == NULL);
  options.tool_choice = CAIRN_TOOL_CHOICE_NONE;
  EXPECT_OK(cairn_session_start_turn(session, &options, &turn, &error));
  CHECK(read_answer(turn, 0).n_bytes > 0);
  cairn_session_destroy(&session);
  close_fixture(&f);
}

int main(int argc, char** argv) {
  if (argc != 3) return fprintf(stderr, "usage: c_rules_test CHECKPOINT EMPTY_FOLDER\n"), 2;
  checkpoint = argv[1];
  folder = argv[2];
  the_text_is_json_of_the_format();
  a_named_tool_is_called();
  what_cannot_be_followed_is_refused_by_name();
  return failures == 0 ? 0 : 1;
}
