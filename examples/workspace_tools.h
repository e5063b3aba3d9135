/* The tools of the example agent, inside one folder: list_dir, read_file, search, edit_file,
 * run_tests, calc and remember. */
#ifndef CAIRN_EXAMPLES_WORKSPACE_TOOLS_H_
#define CAIRN_EXAMPLES_WORKSPACE_TOOLS_H_

#include "test_run.h" /* cancel_tests */
#include "tool_result.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The tools as the model is told about them: a JSON array in the OpenAI shape. cairn-nano was
 * trained with this very text and with results as run_tool gives them. */
extern const char kToolsJson[];

enum {
  kMaxPathBytes = 1024,
  kMaxArgumentBytes = 8192,
  kTestSeconds = 60 /* a run of the tests is ended after them */
};

/* Runs the tool `name` with a JSON object of arguments in the folder `workspace`. Paths are
 * relative to it and cannot leave it: absolute paths, "..", hidden files and links to the outside
 * are refused. What goes wrong (an unknown tool, a missing file) is the answer's text, since the
 * model has to hear of it. run_tests runs the workspace's own run_tests.sh with the rights of this
 * process.
 *
 * A process may be killed after a tool has run and before its result was stored. Running the call
 * again then has to end in the same state with the same result: edit_file remembers in the
 * workspace's folder .agent what it did for the call `call_id`, which is unique in a session; the
 * others may simply run again. */
void run_tool(const char* workspace, const char* call_id, const char* name,
              const char* arguments_json, tool_result* result);

/* To be called once the session has the result of a call, and for all results that a session has
 * when a process opens it: a kill may have come between. */
void tool_result_stored(const char* workspace, const char* call_id);

/* 1 if the tool changes files or runs a program, so that a person should be asked first. */
int tool_needs_consent(const char* name);

#ifdef __cplusplus
}
#endif

#endif
