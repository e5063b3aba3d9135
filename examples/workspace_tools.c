/* Seven tools confined to one folder. An agent that lets a model choose paths checks them after
 * resolving links, not by their spelling alone. */
#define _DEFAULT_SOURCE
#define _XOPEN_SOURCE 700
#include "workspace_tools.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "json_member.h"
#include "test_run.h"

#define PARAMETER(name, about) \
  "\"" name "\": {\"type\": \"string\", \"description\": \"" about "\"}"
#define TOOL(name, about, parameters, required)                                               \
  "{\"type\": \"function\", \"function\": {\"name\": \"" name "\", \"description\": \"" about \
  "\", \"parameters\": {\"type\": \"object\", \"properties\": {" parameters                   \
  "}, \"required\": [" required "]}}}"

const char kToolsJson[] = "["
    TOOL("list_dir", "List a folder.", PARAMETER("path", "folder"), "\"path\"") ", "
    TOOL("read_file", "Read a file.", PARAMETER("path", "file"), "\"path\"") ", "
    TOOL("search", "Find lines that contain a text.", PARAMETER("text", "what to find"),
         "\"text\"") ", "
    TOOL("edit_file", "Replace a text in a file.",
         PARAMETER("path", "file") ", " PARAMETER("old", "text to replace") ", "
         PARAMETER("new", "replacement"), "\"path\", \"old\", \"new\"") ", "
    TOOL("run_tests", "Run the tests.", "", "") ", "
    TOOL("calc", "Compute an arithmetic expression.",
         PARAMETER("expression", "numbers with + - *"), "\"expression\"") ", "
    TOOL("remember", "Store a note.", PARAMETER("key", "what") ", " PARAMETER("value", "content"),
         "\"key\", \"value\"") "]";

enum { kMostFiles = 10000, kMostFileBytes = 1 << 20, kMostHits = 10, kMostDepth = 16 };

/* What the tools keep of a workspace's calls and notes, inside it. */
static const char kOwnFolder[] = ".agent";

/* ---- Paths ---------------------------------------------------------------------------------- */

/* Neither absolute nor with a component that starts with a dot, "." alone excepted. */
static int is_plain_path(const char* path) {
  if (path[0] == '/') return 0;
  for (const char* at = path; at != NULL; at = strchr(at, '/')) {
    at += *at == '/';
    if (at[0] == '.' && at[1] != '\0' && at[1] != '/') return 0;
  }
  return 1;
}

/* Writes the real path of workspace/path to `resolved` (PATH_MAX bytes). 0 and an answer if there
 * is nothing or it is outside; `kind` names what is looked for. */
static int resolve_inside(const char* workspace, const char* path, const char* kind, char* resolved,
                          tool_result* result) {
  char root[PATH_MAX], joined[PATH_MAX];
  if (!is_plain_path(path)) {
    append_text(result, "error: %s: only visible paths inside the workspace are allowed", path);
    return 0;
  }
  const int n_bytes = snprintf(joined, sizeof joined, "%s/%s", workspace, path);
  if (n_bytes < 0 || (size_t)n_bytes >= sizeof joined || realpath(workspace, root) == NULL ||
      realpath(joined, resolved) == NULL) {
    append_text(result, "error: no such %s: %s", kind, path);
    return 0;
  }
  const size_t root_length = strlen(root);
  const int inside = strncmp(resolved, root, root_length) == 0 &&
                     (resolved[root_length] == '/' || resolved[root_length] == '\0');
  if (!inside) append_text(result, "error: %s: leads out of the workspace", path);
  return inside;
}

/* The content of a regular file, ended by a zero and owned by the caller; NULL and an answer if it
 * cannot be had. */
static char* load_file(const char* workspace, const char* path, char* resolved, size_t* n_bytes,
                       tool_result* result) {
  struct stat info;
  if (!resolve_inside(workspace, path, "file", resolved, result)) return NULL;
  if (stat(resolved, &info) != 0 || !S_ISREG(info.st_mode)) {
    append_text(result, "error: no such file: %s", path);
    return NULL;
  }
  if (info.st_size > kMostFileBytes) {
    append_text(result, "error: %s: larger than %d bytes", path, (int)kMostFileBytes);
    return NULL;
  }
  char* content = malloc((size_t)info.st_size + 1);
  FILE* file = fopen(resolved, "rb");
  if (content == NULL || file == NULL) {
    append_text(result, "error: %s: %s", path, strerror(errno));
    if (file != NULL) fclose(file);
    free(content);
    return NULL;
  }
  *n_bytes = fread(content, 1, (size_t)info.st_size, file);
  content[*n_bytes] = '\0';
  fclose(file);
  return content;
}

/* ---- Looking -------------------------------------------------------------------------------- */

static int is_folder(const struct dirent* entry) { return entry->d_type == DT_DIR; }

/* As if the slash that a folder is shown with were part of its name. */
static int by_shown_name(const struct dirent** a, const struct dirent** b) {
  char shown_a[NAME_MAX + 2], shown_b[NAME_MAX + 2];
  snprintf(shown_a, sizeof shown_a, "%s%s", (*a)->d_name, is_folder(*a) ? "/" : "");
  snprintf(shown_b, sizeof shown_b, "%s%s", (*b)->d_name, is_folder(*b) ? "/" : "");
  return strcmp(shown_a, shown_b);
}

static void list_dir(const char* workspace, const char* given, tool_result* result) {
  char resolved[PATH_MAX], path[kMaxPathBytes], child[2 * PATH_MAX];
  struct dirent** entries = NULL;
  struct stat info;
  const char* start = given + strspn(given, "/");
  snprintf(path, sizeof path, "%s", start);
  for (size_t n = strlen(path); n > 0 && path[n - 1] == '/';) path[--n] = '\0';
  if (!resolve_inside(workspace, path[0] == '\0' ? "." : path, "folder", resolved, result)) return;
  const int n_entries = scandir(resolved, &entries, NULL, by_shown_name);
  if (n_entries < 0) append_text(result, "error: no such folder: %s", path);
  for (int i = 0; i < n_entries; ++i) {
    const char* name = entries[i]->d_name;
    snprintf(child, sizeof child, "%s/%s", resolved, name);
    if (name[0] != '.' && lstat(child, &info) == 0) {
      append_text(result, "%s%s%s", result->n_bytes > 0 ? "\n" : "", name,
                  S_ISDIR(info.st_mode) ? "/" : "");
    }
    free(entries[i]);
  }
  free(entries);
}

static void read_file(const char* workspace, const char* path, tool_result* result) {
  char resolved[PATH_MAX];
  size_t n_bytes = 0;
  char* content = load_file(workspace, path, resolved, &n_bytes, result);
  if (content == NULL) return;
  while (n_bytes > 0 && content[n_bytes - 1] == '\n') --n_bytes;
  append_bytes(result, content, n_bytes);
  free(content);
}

typedef struct path_list {
  char** paths;
  size_t n_paths;
} path_list;

/* Adds the files under workspace/folder, hidden ones and links left out. */
static void collect_files(const char* workspace, const char* folder, int depth, path_list* list) {
  char path[PATH_MAX], relative[PATH_MAX];
  struct stat info;
  snprintf(path, sizeof path, "%s/%s", workspace, folder);
  DIR* open_folder = depth < kMostDepth ? opendir(path) : NULL;
  for (struct dirent* entry; open_folder != NULL && (entry = readdir(open_folder)) != NULL;) {
    if (entry->d_name[0] == '.' || list->n_paths == kMostFiles) continue;
    const int a =
        snprintf(relative, sizeof relative, "%s%s%s", folder, folder[0] ? "/" : "", entry->d_name);
    const int b = snprintf(path, sizeof path, "%s/%s", workspace, relative);
    if (a >= kMaxPathBytes || b >= PATH_MAX || lstat(path, &info) != 0) continue;
    if (S_ISDIR(info.st_mode)) collect_files(workspace, relative, depth + 1, list);
    if (S_ISREG(info.st_mode) && (list->paths[list->n_paths] = strdup(relative)) != NULL) {
      ++list->n_paths;
    }
  }
  if (open_folder != NULL) closedir(open_folder);
}

static int by_text(const void* a, const void* b) {
  return strcmp(*(char* const*)a, *(char* const*)b);
}

/* Adds the lines of one file that contain `text`; returns how many hits there are now. */
static int search_file(const char* path, const char* content, const char* text, int n_hits,
                       tool_result* result) {
  static const char kSpace[] = " \t\r\f\v";
  const char* found = strstr(content, text);
  int number = 1;
  for (const char* line = content; *line != '\0' && n_hits < kMostHits; ++number) {
    size_t length = strcspn(line, "\n");
    const char* following = line + length + (line[length] == '\n');
    if (found != NULL && found < line) found = strstr(line, text);
    if (found == NULL) break;
    if (found + strlen(text) <= line + length) {
      const size_t indent = strspn(line, kSpace);
      while (length > indent && strchr(kSpace, line[length - 1]) != NULL) --length;
      append_text(result, "%s%s:%d: ", n_hits > 0 ? "\n" : "", path, number);
      append_bytes(result, line + indent, length - (indent < length ? indent : length));
      ++n_hits;
    }
    line = following;
  }
  return n_hits;
}

static void search(const char* workspace, const char* text, tool_result* result) {
  path_list list = {malloc(kMostFiles * sizeof(char*)), 0};
  tool_result* unread = malloc(sizeof *unread); /* why a file was left out */
  char resolved[PATH_MAX];
  int n_hits = 0;
  if (list.paths != NULL && unread != NULL) {
    collect_files(workspace, "", 0, &list);
    qsort(list.paths, list.n_paths, sizeof *list.paths, by_text);
  }
  for (size_t i = 0; i < list.n_paths; ++i) {
    size_t n_bytes = 0;
    unread->n_bytes = 0;
    char* content =
        n_hits < kMostHits ? load_file(workspace, list.paths[i], resolved, &n_bytes, unread) : NULL;
    if (content != NULL) n_hits = search_file(list.paths[i], content, text, n_hits, result);
    free(content);
    free(list.paths[i]);
  }
  if (n_hits == 0) append_text(result, "no matches");
  free(list.paths);
  free(unread);
}

/* ---- Changing ------------------------------------------------------------------------------- */

/* Writes bytes that are on the disk when it returns 1. */
static int write_durably(const char* path, const char* bytes, size_t n_bytes) {
  FILE* file = fopen(path, "wb");
  if (file == NULL) return 0;
  const int written =
      fwrite(bytes, 1, n_bytes, file) == n_bytes && fflush(file) == 0 && fsync(fileno(file)) == 0;
  return fclose(file) == 0 && written;
}

/* The path of what is kept for a call; 0 if the id does not make a file name. */
static int call_path(const char* workspace, const char* call_id, const char* ending, char* path) {
  static const char kNameBytes[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
  const size_t length = strlen(call_id);
  if (length == 0 || length > 128 || strspn(call_id, kNameBytes) != length) return 0;
  return snprintf(path, PATH_MAX, "%s/%s/%s%s", workspace, kOwnFolder, call_id, ending) < PATH_MAX;
}

static int make_own_folder(const char* workspace) {
  char path[PATH_MAX];
  const int n_bytes = snprintf(path, sizeof path, "%s/%s", workspace, kOwnFolder);
  return n_bytes < PATH_MAX && (mkdir(path, 0777) == 0 || errno == EEXIST);
}

/* `content` with all of `old` replaced by `new`, owned by the caller; NULL if memory or size lack.
 */
static char* replaced(const char* content, const char* old, const char* new, size_t* n_found,
                      size_t* n_bytes) {
  const size_t old_length = strlen(old), new_length = strlen(new);
  size_t count = 0;
  for (const char* at = content; (at = strstr(at, old)) != NULL; at += old_length) ++count;
  *n_found = count;
  *n_bytes = strlen(content) - count * old_length + count * new_length;
  char* out = count > 0 && *n_bytes <= kMostFileBytes ? malloc(*n_bytes + 1) : NULL;
  if (out == NULL) return NULL;
  char* to = out;
  for (const char *at = content, *found; *at != '\0';) {
    found = strstr(at, old);
    const size_t kept = found != NULL ? (size_t)(found - at) : strlen(at);
    memcpy(to, at, kept);
    to += kept;
    at += kept;
    if (found == NULL) break;
    memcpy(to, new, new_length);
    to += new_length;
    at += old_length;
  }
  *to = '\0';
  return out;
}

/* Makes `bytes` the content of the file `target` in a way that a repetition of the call finds:
 * first the new content and the result beside it, then one rename. */
static int change_file(const char* workspace, const char* call_id, const char* target,
                       const char* bytes, size_t n_bytes, const tool_result* result) {
  char content[PATH_MAX], answer[PATH_MAX];
  struct stat info;
  if (!make_own_folder(workspace) || !call_path(workspace, call_id, ".content", content) ||
      !call_path(workspace, call_id, ".result", answer)) {
    return 0;
  }
  return write_durably(content, bytes, n_bytes) && stat(target, &info) == 0 &&
         chmod(content, info.st_mode & 07777) == 0 &&
         write_durably(answer, result->text, result->n_bytes) && rename(content, target) == 0;
}

/* Whether the call was run before. Then its result is given again, and what a kill kept from
 * happening is done. */
static int was_run(const char* workspace, const char* call_id, const char* target,
                   tool_result* result) {
  char content[PATH_MAX], answer[PATH_MAX];
  if (!call_path(workspace, call_id, ".content", content) ||
      !call_path(workspace, call_id, ".result", answer)) {
    return 0;
  }
  FILE* file = fopen(answer, "rb");
  if (file == NULL) return 0;
  char text[64];
  append_bytes(result, text, fread(text, 1, sizeof text, file));
  fclose(file);
  rename(content, target); /* fails if it was done */
  return 1;
}

void tool_result_stored(const char* workspace, const char* call_id) {
  char answer[PATH_MAX];
  if (call_path(workspace, call_id, ".result", answer)) unlink(answer);
}

static void edit_file(const char* workspace, const char* call_id, const char* path, const char* old,
                      const char* new, tool_result* result) {
  char target[PATH_MAX];
  size_t n_bytes = 0, n_found = 0, n_new = 0;
  char* content = load_file(workspace, path, target, &n_bytes, result);
  if (content == NULL) return;
  if (!was_run(workspace, call_id, target, result)) {
    const int is_text = strlen(content) == n_bytes;
    char* changed =
        old[0] != '\0' && is_text ? replaced(content, old, new, &n_found, &n_new) : NULL;
    if (!is_text) {
      append_text(result, "error: %s: not a text file", path);
    } else if (n_found == 0) {
      append_text(result, "error: text not found");
    } else {
      append_text(result, "replaced %zu", n_found);
    }
    if (n_found > 0 &&
        (changed == NULL || !change_file(workspace, call_id, target, changed, n_new, result))) {
      result->n_bytes = 0;
      append_text(result, "error: %s: cannot be written", path);
    }
    free(changed);
  }
  free(content);
}

/* Whether the last line of a file is this one, which has its newline. */
static int has_last_line(FILE* file, const char* line, size_t n_bytes) {
  char end[2 * kMaxArgumentBytes];
  int before = '\n';
  if (fseek(file, -(long)n_bytes - 1, SEEK_END) == 0) before = fgetc(file);
  return before == '\n' && fseek(file, -(long)n_bytes, SEEK_END) == 0 &&
         fread(end, 1, n_bytes, file) == n_bytes && memcmp(end, line, n_bytes) == 0;
}

/* Notes are lines "key: value" of one file; a later one counts. A call that runs again after a kill
 * finds its line at the end. */
static void remember(const char* workspace, const char* key, const char* value,
                     tool_result* result) {
  char path[PATH_MAX], line[2 * kMaxArgumentBytes];
  const int n_bytes = snprintf(line, sizeof line, "%s: %s\n", key, value);
  const int has_path = make_own_folder(workspace) && call_path(workspace, "notes", "", path);
  FILE* file = has_path && n_bytes < (int)sizeof line ? fopen(path, "a+") : NULL;
  const int kept =
      file != NULL && (has_last_line(file, line, (size_t)n_bytes) ||
                       (fseek(file, 0, SEEK_END) == 0 &&
                        fwrite(line, 1, (size_t)n_bytes, file) == (size_t)n_bytes));
  if (file == NULL || fclose(file) != 0 || !kept) {
    append_text(result, "error: the note cannot be written");
  } else {
    append_text(result, "saved");
  }
}

/* ---- Running and computing ------------------------------------------------------------------ */

static void run_tests(const char* workspace, tool_result* result) {
  char script[PATH_MAX];
  if (!resolve_inside(workspace, "run_tests.sh", "file", script, result)) return;
  run_test_script(workspace, kTestSeconds, result);
}

/* Reads a number of up to 9 digits; NULL if there is none. */
static const char* read_number(const char* at, long long* value) {
  const size_t n_digits = strspn(at, "0123456789");
  if (n_digits == 0 || n_digits > 9) return NULL;
  *value = strtoll(at, NULL, 10);
  return at + n_digits;
}

/* Numbers with " + ", " - " and " * " between them; products first. */
static void calc(const char* expression, tool_result* result) {
  static const long long kMost = 1000000000000000000LL;
  long long sum = 0, product = 0, factor = 0, sign = 1;
  const char* at = read_number(expression, &product);
  while (at != NULL && *at != '\0') {
    const char operation = at[0] == ' ' && strchr("+-*", at[1]) != NULL ? at[1] : '\0';
    at = operation != '\0' && at[2] == ' ' ? read_number(at + 3, &factor) : NULL;
    if (at == NULL) break;
    if (operation == '*') {
      if (factor != 0 && product > kMost / factor) {
        append_text(result, "error: too large");
        return;
      }
      product *= factor;
    } else {
      sum += sign * product;
      sign = operation == '+' ? 1 : -1;
      product = factor;
    }
    if (sum > kMost || sum < -kMost) {
      append_text(result, "error: too large");
      return;
    }
  }
  if (at == NULL) {
    append_text(result, "error: not an expression");
  } else {
    append_text(result, "%lld", sum + sign * product);
  }
}

/* ---- Calls ---------------------------------------------------------------------------------- */

/* The arguments of a call, which are strings, in the order of `names`; 0 if they are others. */
static int read_arguments(const char* json, const char* const* names, int n_names,
                          char (*values)[kMaxArgumentBytes], tool_result* result) {
  int n_found = 0;
  while (n_found < n_names &&
         json_string_member(json, names[n_found], values[n_found], sizeof values[n_found])) {
    ++n_found;
  }
  const int right = n_found == n_names && json_n_members(json) == n_names;
  if (!right) append_text(result, "error: wrong arguments");
  return right;
}

int tool_needs_consent(const char* name) {
  return strcmp(name, "edit_file") == 0 || strcmp(name, "run_tests") == 0;
}

void run_tool(const char* workspace, const char* call_id, const char* name,
              const char* arguments_json, tool_result* result) {
  static const struct {
    const char* name;
    int n_arguments;
    const char* arguments[3];
  } kTools[] = {
      {"list_dir", 1, {"path"}},         {"read_file", 1, {"path"}},
      {"search", 1, {"text"}},           {"edit_file", 3, {"path", "old", "new"}},
      {"run_tests", 0, {NULL}},          {"calc", 1, {"expression"}},
      {"remember", 2, {"key", "value"}},
  };
  enum { kListDir, kReadFile, kSearch, kEditFile, kRunTests, kCalc, kRemember, kNone };
  char(*values)[kMaxArgumentBytes] = calloc(3, sizeof *values);
  int tool = 0;
  memset(result, 0, sizeof *result);
  while (tool < kNone && strcmp(kTools[tool].name, name) != 0) ++tool;
  if (tool == kNone) {
    append_text(result, "error: no such tool: %s", name);
  } else if (values == NULL) {
    append_text(result, "error: no memory");
  } else if (read_arguments(arguments_json, kTools[tool].arguments, kTools[tool].n_arguments,
                            values, result)) {
    if (tool == kListDir) list_dir(workspace, values[0], result);
    if (tool == kReadFile) read_file(workspace, values[0], result);
    if (tool == kSearch) search(workspace, values[0], result);
    if (tool == kEditFile) {
      edit_file(workspace, call_id, values[0], values[1], values[2], result);
    }
    if (tool == kRunTests) run_tests(workspace, result);
    if (tool == kCalc) calc(values[0], result);
    if (tool == kRemember) remember(workspace, values[0], values[1], result);
  }
  free(values);
  clean_text(result);
}
