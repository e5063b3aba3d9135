/* Runs a workspace's own tests with a time limit. */
#ifndef CAIRN_EXAMPLES_TEST_RUN_H_
#define CAIRN_EXAMPLES_TEST_RUN_H_

#include "tool_result.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Runs `sh run_tests.sh` in `folder`, without input, for at most `seconds`, and appends what it
 * prints, or its exit status if that is nothing. What it leaves running is killed. One at a time in
 * a process. */
void run_test_script(const char* folder, double seconds, tool_result* result);

/* Ends the script that runs, if one does. From any thread or signal handler. */
void cancel_tests(void);

#ifdef __cplusplus
}
#endif

#endif
