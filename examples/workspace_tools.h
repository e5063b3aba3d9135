/* The tools of the example agent: read_file, list_dir and run_tests inside one folder. */
#ifndef CAIRN_EXAMPLES_WORKSPACE_TOOLS_H_
#define CAIRN_EXAMPLES_WORKSPACE_TOOLS_H_

#include <stddef.h>

/* The tools as the model is told about them: a JSON array in the OpenAI shape. */
extern const char kToolsJson[];

enum { kMaxResultBytes = 8192, kMaxPathBytes = 1024 };

/* A tool's answer: UTF-8 text, always ended by a zero. */
typedef struct tool_result {
  char text[kMaxResultBytes + 1];
  size_t n_bytes;
} tool_result;

/* Runs the tool `name` in `workspace`. `path` is relative to it and cannot leave it: absolute
 * paths,
 * ".." and links to the outside are refused. What goes wrong (an unknown tool, a missing file) is
 * the answer's text, since the model has to hear of it. run_tests runs the workspace's own
 * run_tests.sh with the rights of this process. */
void run_tool(const char* workspace, const char* name, const char* path, tool_result* result);

/* Copies the string member `key` of a JSON object to `value`, decoded and ended by a zero. Returns
 * 0, and "" in `value`, if there is no such member, it is no string, or it does not fit. */
int json_string_member(const char* json, const char* key, char* value, size_t value_size);

#endif
