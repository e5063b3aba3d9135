#include "tool_result.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

void append_bytes(tool_result* result, const char* bytes, size_t n_bytes) {
  const size_t room = kMaxResultBytes - result->n_bytes;
  if (n_bytes > room) n_bytes = room;
  memcpy(result->text + result->n_bytes, bytes, n_bytes);
  result->n_bytes += n_bytes;
  result->text[result->n_bytes] = '\0';
}

void append_text(tool_result* result, const char* format, ...) {
  char text[kMaxResultBytes + 1];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  append_bytes(result, text, strlen(text));
}

void drop_last_newlines(tool_result* result) {
  while (result->n_bytes > 0 && result->text[result->n_bytes - 1] == '\n') {
    result->text[--result->n_bytes] = '\0';
  }
}

/* The length of the UTF-8 character at `at`, or 0 if it is not one. */
static size_t utf8_length(const unsigned char* at, const unsigned char* end) {
  static const uint32_t kLeast[5] = {0, 0, 0x80, 0x800, 0x10000};
  const size_t length = *at < 0x80   ? 1
                        : *at < 0xC2 ? 0
                        : *at < 0xE0 ? 2
                        : *at < 0xF0 ? 3
                        : *at < 0xF5 ? 4
                                     : 0;
  if (length <= 1) return length;
  if ((size_t)(end - at) < length) return 0;
  uint32_t code_point = *at & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((at[i] & 0xC0) != 0x80) return 0;
    code_point = code_point << 6 | (at[i] & 0x3Fu);
  }
  const int surrogate = code_point >= 0xD800 && code_point <= 0xDFFF;
  return code_point >= kLeast[length] && code_point <= 0x10FFFF && !surrogate ? length : 0;
}

/* One- and two-byte control characters; the latter are U+0080 to U+009F. */
static int is_control(const unsigned char* at) {
  if (at[0] == 0xC2) return at[1] < 0xA0;
  return at[0] == 0x7F || (at[0] < 0x20 && at[0] != '\n' && at[0] != '\t');
}

void clean_text(tool_result* result) {
  unsigned char* at = (unsigned char*)result->text;
  unsigned char* const end = at + result->n_bytes;
  while (at < end) {
    const size_t length = utf8_length(at, end);
    if (length == 0 || is_control(at)) {
      memset(at, '?', length == 0 ? 1 : length);
    }
    at += length == 0 ? 1 : length;
  }
}
