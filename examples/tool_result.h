/* What a tool answers: a text of bounded length that a model and a terminal can take. */
#ifndef CAIRN_EXAMPLES_TOOL_RESULT_H_
#define CAIRN_EXAMPLES_TOOL_RESULT_H_

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { kMaxResultBytes = 8192 };

typedef struct tool_result {
  char text[kMaxResultBytes + 1]; /* always ended by a zero */
  size_t n_bytes;
} tool_result;

/* What does not fit is left out. */
void append_bytes(tool_result* result, const char* bytes, size_t n_bytes);
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void append_text(tool_result* result, const char* format, ...);

void drop_last_newlines(tool_result* result);

/* Files and programs print anything; Cairn takes UTF-8 only, and a terminal obeys control
 * characters. All that is neither well-formed text nor newline or tab becomes '?'. */
void clean_text(tool_result* result);

#ifdef __cplusplus
}
#endif

#endif
