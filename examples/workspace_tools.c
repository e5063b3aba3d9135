/* Three tools confined to one folder, and as much JSON as their arguments need. An agent that lets
 * a model choose paths checks them after resolving links, not by their spelling alone. */
#define _XOPEN_SOURCE 700
#include "workspace_tools.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

const char kToolsJson[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"read_file\", \"description\": "
    "\"Returns a text file.\", \"parameters\": {\"type\": \"object\", \"properties\": {\"path\": "
    "{\"type\": \"string\"}}, \"required\": [\"path\"]}}}, "
    "{\"type\": \"function\", \"function\": {\"name\": \"list_dir\", \"description\": "
    "\"Lists a folder.\", \"parameters\": {\"type\": \"object\", \"properties\": {\"path\": "
    "{\"type\": \"string\"}}, \"required\": [\"path\"]}}}, "
    "{\"type\": \"function\", \"function\": {\"name\": \"run_tests\", \"description\": "
    "\"Runs the tests.\", \"parameters\": {\"type\": \"object\", \"properties\": {}}}}]";

/* ---- Results -------------------------------------------------------------------------------- */

static void append_bytes(tool_result* result, const char* bytes, size_t n_bytes) {
  const size_t room = kMaxResultBytes - result->n_bytes;
  if (n_bytes > room) n_bytes = room;
  memcpy(result->text + result->n_bytes, bytes, n_bytes);
  result->n_bytes += n_bytes;
  result->text[result->n_bytes] = '\0';
}

static void append_text(tool_result* result, const char* format, ...) {
  char line[2 * kMaxPathBytes];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  append_bytes(result, line, strlen(line));
}

static void append_stream(tool_result* result, FILE* stream) {
  char chunk[1024];
  size_t n_bytes = 0;
  while ((n_bytes = fread(chunk, 1, sizeof chunk, stream)) > 0) {
    append_bytes(result, chunk, n_bytes);
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

/* Cairn takes UTF-8 only; what a tool prints may be anything. */
static void replace_invalid_utf8(tool_result* result) {
  unsigned char* at = (unsigned char*)result->text;
  unsigned char* const end = at + result->n_bytes;
  while (at < end) {
    const size_t length = *at == 0 ? 0 : utf8_length(at, end);
    if (length == 0) *at = '?';
    at += length == 0 ? 1 : length;
  }
}

/* ---- Tools ---------------------------------------------------------------------------------- */

static int has_parent_component(const char* path) {
  for (const char* at = path; (at = strstr(at, "..")) != NULL; at += 2) {
    const int starts = at == path || at[-1] == '/';
    if (starts && (at[2] == '\0' || at[2] == '/')) return 1;
  }
  return 0;
}

/* Writes the real path of workspace/path to `resolved` (PATH_MAX bytes). 0 if it is outside. */
static int resolve_inside(const char* workspace, const char* path, char* resolved,
                          tool_result* result) {
  char root[PATH_MAX], joined[PATH_MAX];
  if (path[0] == '/' || has_parent_component(path)) {
    append_text(result, "error: %s: only paths inside the workspace are allowed", path);
    return 0;
  }
  const int n_bytes = snprintf(joined, sizeof joined, "%s/%s", workspace, path);
  if (n_bytes < 0 || (size_t)n_bytes >= sizeof joined || realpath(workspace, root) == NULL ||
      realpath(joined, resolved) == NULL) {
    append_text(result, "error: %s: %s", path, strerror(errno));
    return 0;
  }
  const size_t root_length = strlen(root);
  const int inside = strncmp(resolved, root, root_length) == 0 &&
                     (resolved[root_length] == '/' || resolved[root_length] == '\0');
  if (!inside) append_text(result, "error: %s: leads out of the workspace", path);
  return inside;
}

static void read_file(const char* workspace, const char* path, tool_result* result) {
  char resolved[PATH_MAX];
  if (!resolve_inside(workspace, path, resolved, result)) return;
  FILE* file = fopen(resolved, "rb");
  if (file == NULL) {
    append_text(result, "error: %s: %s", path, strerror(errno));
    return;
  }
  append_stream(result, file);
  if (ferror(file)) append_text(result, "error: %s: cannot be read", path);
  fclose(file);
}

static void list_dir(const char* workspace, const char* path, tool_result* result) {
  char resolved[PATH_MAX];
  struct dirent** entries = NULL;
  if (!resolve_inside(workspace, path[0] == '\0' ? "." : path, resolved, result)) return;
  const int n_entries = scandir(resolved, &entries, NULL, alphasort);
  if (n_entries < 0) append_text(result, "error: %s: %s", path, strerror(errno));
  for (int i = 0; i < n_entries; ++i) {
    if (entries[i]->d_name[0] != '.') append_text(result, "%s\n", entries[i]->d_name);
    free(entries[i]);
  }
  free(entries);
}

/* Runs `sh run_tests.sh` in the workspace with both its outputs in `output`. Does not return. */
static void become_test_run(const char* workspace, int output) {
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  alarm(60); /* survives exec and ends a run that hangs */
  if (chdir(workspace) == 0) execl("/bin/sh", "sh", "run_tests.sh", (char*)NULL);
  _exit(127);
}

static void run_tests(const char* workspace, tool_result* result) {
  char script[PATH_MAX];
  int ends[2], status = 0;
  if (!resolve_inside(workspace, "run_tests.sh", script, result)) return;
  const pid_t child = pipe(ends) == 0 ? fork() : -1;
  if (child < 0) {
    append_text(result, "error: run_tests: %s", strerror(errno));
    return;
  }
  if (child == 0) become_test_run(workspace, ends[1]);
  close(ends[1]);
  FILE* output = fdopen(ends[0], "rb");
  if (output != NULL) {
    append_stream(result, output);
    fclose(output);
  }
  waitpid(child, &status, 0);
  append_text(result, "exit status %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

void run_tool(const char* workspace, const char* name, const char* path, tool_result* result) {
  memset(result, 0, sizeof *result);
  if (strcmp(name, "read_file") == 0) {
    read_file(workspace, path, result);
  } else if (strcmp(name, "list_dir") == 0) {
    list_dir(workspace, path, result);
  } else if (strcmp(name, "run_tests") == 0) {
    run_tests(workspace, result);
  } else {
    append_text(result, "error: there is no tool named %s", name);
  }
  replace_invalid_utf8(result);
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static const char* skip_space(const char* at) { return at + strspn(at, " \t\r\n"); }

/* Writes the code point as UTF-8 and returns its length. Below U+10000 only. */
static size_t encode_utf8(unsigned code_point, char* out) {
  if (code_point < 0x80) {
    out[0] = (char)code_point;
    return 1;
  }
  if (code_point < 0x800) {
    out[0] = (char)(0xC0 | code_point >> 6);
    out[1] = (char)(0x80 | (code_point & 0x3F));
    return 2;
  }
  out[0] = (char)(0xE0 | code_point >> 12);
  out[1] = (char)(0x80 | (code_point >> 6 & 0x3F));
  out[2] = (char)(0x80 | (code_point & 0x3F));
  return 3;
}

/* Decodes one escape after the backslash at `at`; returns what follows it, NULL if it is bad. */
static const char* decode_escape(const char* at, char* out, size_t* length) {
  static const char kFrom[] = "\"\\/bfnrt", kTo[] = "\"\\/\b\f\n\r\t";
  const char* found = *at == '\0' ? NULL : strchr(kFrom, *at);
  *length = 1;
  if (found != NULL) {
    *out = kTo[found - kFrom];
    return at + 1;
  }
  if (*at != 'u' || strspn(at + 1, "0123456789abcdefABCDEF") < 4) return NULL;
  const char digits[5] = {at[1], at[2], at[3], at[4], '\0'};
  *length = encode_utf8((unsigned)strtoul(digits, NULL, 16), out);
  return at + 5;
}

/* Decodes the string that starts at `at`; returns what follows it, NULL if it is bad or too long.
 */
static const char* decode_string(const char* at, char* out, size_t out_size) {
  size_t used = 0;
  if (*at != '"') return NULL;
  for (++at; *at != '"';) {
    char decoded[4] = {*at, 0, 0, 0};
    size_t length = 1;
    if (*at == '\0') return NULL;
    at = *at == '\\' ? decode_escape(at + 1, decoded, &length) : at + 1;
    if (at == NULL || used + length >= out_size) return NULL;
    memcpy(out + used, decoded, length);
    used += length;
  }
  out[used] = '\0';
  return at + 1;
}

/* The end of the value at `at`, whatever it is; NULL if the text ends inside it. */
static const char* skip_value(const char* at) {
  int depth = 0, in_string = 0;
  for (; *at != '\0'; ++at) {
    if (in_string) {
      if (*at == '\\' && at[1] != '\0')
        ++at;
      else if (*at == '"')
        in_string = 0;
    } else if (depth == 0 && (*at == ',' || *at == '}')) {
      return at;
    } else if (*at == '"') {
      in_string = 1;
    } else if (*at == '{' || *at == '[') {
      ++depth;
    } else if (*at == '}' || *at == ']') {
      --depth;
    }
  }
  return NULL;
}

int json_string_member(const char* json, const char* key, char* value, size_t value_size) {
  char name[256];
  value[0] = '\0';
  const char* at = skip_space(json);
  if (*at != '{') return 0;
  do {
    at = decode_string(skip_space(at + 1), name, sizeof name);
    if (at == NULL || *(at = skip_space(at)) != ':') return 0;
    at = skip_space(at + 1);
    if (strcmp(name, key) == 0) {
      if (decode_string(at, value, value_size) != NULL) return 1;
      value[0] = '\0';
      return 0;
    }
    at = skip_value(at);
  } while (at != NULL && *at == ',');
  return 0;
}
