/* A small coding agent over the C API: the user says one task after the other, the model answers,
 * its tool calls run in a workspace folder, their results go back, until it stops calling tools.
 *
 * The loop keeps no state of its own. Each step reads from the session where the conversation
 * stands and does the next thing, so a process that was killed at any instant is continued by
 * running the same command again. A tool whose result was not appended yet runs again. */
#define _XOPEN_SOURCE 700
#include <cairn/cairn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "workspace_tools.h"

static const char kInstructions[] = "You are Cairn, a coding agent in a small repository.";

enum { kMostTasks = 64 };

/* ---- What the user asked for ---------------------------------------------------------------- */

typedef struct settings {
  const char* model;
  const char* store;
  const char* session;
  const char* workspace;
  const char* tasks[kMostTasks];
  size_t n_tasks;
  const char* account;    /* NULL = none */
  const char* transcript; /* NULL = none */
  cairn_turn_options turn;
  int32_t thinking;
  long max_calls;
} settings;

static const char kUsage[] =
    "usage: tool_loop --model DIR --store DIR [options]\n"
    "  --session NAME      session in the store (agent)\n"
    "  --workspace DIR     folder that the tools work in (.)\n"
    "  --task TEXT         what the user says; several are said one after the other\n"
    "  --max-tokens N      of one answer (512)\n"
    "  --max-calls N       answers with calls after one task (16)\n"
    "  --seed N            of sampling (0)\n"
    "  --greedy            always take the most likely token\n"
    "  --thinking          the model reasons before it answers; for a new session\n"
    "  --account FILE      write what was reused, computed and stored, as key=value lines\n"
    "  --transcript FILE   write every answer of the session\n";

/* The settings that take text, with their names. */
static const char** text_setting(settings* s, const char* name) {
  const struct {
    const char* name;
    const char** value;
  } table[] = {
      {"--model", &s->model},         {"--store", &s->store},     {"--session", &s->session},
      {"--workspace", &s->workspace}, {"--account", &s->account}, {"--transcript", &s->transcript},
  };
  for (size_t i = 0; i < sizeof table / sizeof table[0]; ++i) {
    if (strcmp(name, table[i].name) == 0) return table[i].value;
  }
  return NULL;
}

static int parse_number(settings* s, const char* name, const char* text) {
  char* end = NULL;
  const long long value = strtoll(text, &end, 10);
  if (end == text || *end != '\0' || value < 0) return 0;
  if (strcmp(name, "--max-tokens") == 0) {
    s->turn.max_tokens = (int32_t)value;
  } else if (strcmp(name, "--max-calls") == 0) {
    s->max_calls = (long)value;
  } else if (strcmp(name, "--seed") == 0) {
    s->turn.seed = (uint64_t)value;
  } else {
    return 0;
  }
  return 1;
}

/* 0 if the arguments make no sense. */
static int parse_arguments(int argc, char** argv, settings* s) {
  for (int i = 1; i < argc; ++i) {
    const char** text = text_setting(s, argv[i]);
    if (strcmp(argv[i], "--task") == 0 && s->n_tasks < kMostTasks) text = &s->tasks[s->n_tasks++];
    if (strcmp(argv[i], "--thinking") == 0) {
      s->thinking = 1;
    } else if (strcmp(argv[i], "--greedy") == 0) {
      s->turn.greedy = 1;
    } else if (i + 1 == argc) {
      return 0;
    } else if (text != NULL) {
      *text = argv[++i];
    } else if (!parse_number(s, argv[i], argv[i + 1])) {
      return 0;
    } else {
      ++i;
    }
  }
  return s->model != NULL && s->store != NULL && s->n_tasks > 0;
}

/* ---- The agent ------------------------------------------------------------------------------ */

/* What this process did, summed over its turns. */
typedef struct account {
  int64_t turns, resumed_turns, tools_run;
  int64_t prompt_tokens, from_memory, from_disk, replayed, prefilled;
  int64_t output_tokens, resumed_tokens, bytes_written;
  double restore_ms, prefill_ms, decode_ms;
  /* Of the first turn alone: what a user waits for after a restart. */
  int64_t first_prompt_tokens, first_from_disk, first_replayed, first_prefilled;
  double first_restore_ms, first_token_ms;
} account;

typedef struct agent {
  settings settings;
  cairn_runtime* runtime;
  cairn_model* model;
  cairn_store* store;
  cairn_session* session;
  FILE* transcript; /* NULL = none */
  account account;
  cairn_error* error; /* of the call that failed */
} agent;

static const char* dim(void) { return isatty(STDOUT_FILENO) ? "\033[2m" : ""; }
static const char* bold(void) { return isatty(STDOUT_FILENO) ? "\033[1m" : ""; }
static const char* plain(void) { return isatty(STDOUT_FILENO) ? "\033[0m" : ""; }

/* Puts bytes into the transcript at once: another process may watch it grow. */
static void transcribe(agent* a, const char* bytes, size_t n_bytes) {
  if (a->transcript == NULL) return;
  fwrite(bytes, 1, n_bytes, a->transcript);
  fflush(a->transcript);
}

static void transcribe_text(agent* a, const char* text) { transcribe(a, text, strlen(text)); }

static cairn_code open_everything(agent* a) {
  const settings* s = &a->settings;
  cairn_error** error = &a->error;
  cairn_session_options options = CAIRN_SESSION_OPTIONS_INIT;
  options.thinking = s->thinking;
  cairn_code code = cairn_runtime_create(NULL, &a->runtime, error);
  if (!code) code = cairn_model_open(a->runtime, s->model, CAIRN_CSTRING, NULL, &a->model, error);
  if (!code) code = cairn_store_open(a->runtime, s->store, CAIRN_CSTRING, NULL, &a->store, error);
  if (!code) {
    code = cairn_session_open_or_create(a->model, a->store, s->session, CAIRN_CSTRING, &options,
                                        &a->session, error);
  }
  return code;
}

static void close_everything(agent* a) {
  cairn_error_destroy(&a->error);
  cairn_session_destroy(&a->session);
  cairn_store_destroy(&a->store);
  cairn_model_destroy(&a->model);
  cairn_runtime_destroy(&a->runtime);
  if (a->transcript != NULL) fclose(a->transcript);
}

/* ---- One answer ----------------------------------------------------------------------------- */

static void count_reuse(agent* a, const cairn_event* event) {
  cairn_reuse r = CAIRN_REUSE_INIT;
  if (cairn_event_get_reuse(event, &r, NULL) != CAIRN_OK) return;
  a->account.prompt_tokens += r.prompt_tokens;
  a->account.from_memory += r.from_memory;
  a->account.from_disk += r.from_disk;
  a->account.prefilled += r.prefilled;
  a->account.replayed += r.replayed;
  a->account.restore_ms += r.restore_ms;
  if (a->account.turns > 1) return;
  a->account.first_prompt_tokens = r.prompt_tokens;
  a->account.first_from_disk = r.from_disk;
  a->account.first_replayed = r.replayed;
  a->account.first_prefilled = r.prefilled;
  a->account.first_restore_ms = r.restore_ms;
  if (r.from_disk == 0) return; /* what a process that goes on finds is worth a line */
  printf("%s[prompt of %" PRId64 " tokens: %" PRId64 " from disk in %.1f ms, %" PRId64
         " prefilled; %s]%s\n",
         dim(), r.prompt_tokens, r.from_disk, r.restore_ms, r.prefilled, r.detail, plain());
}

static void count_usage(agent* a, const cairn_event* event) {
  cairn_usage u = CAIRN_USAGE_INIT;
  if (cairn_event_get_usage(event, &u, NULL) != CAIRN_OK) return;
  if (a->account.turns == 1) a->account.first_token_ms = u.first_token_ms;
  a->account.output_tokens += u.output_tokens;
  a->account.resumed_tokens += u.resumed_tokens;
  a->account.bytes_written += u.bytes_written;
  a->account.prefill_ms += u.prefill_ms;
  a->account.decode_ms += u.decode_ms;
}

static void begin_block(agent* a, int32_t kind, const char* tool_name) {
  if (kind == CAIRN_BLOCK_REASONING) transcribe_text(a, "\n<reasoning> ");
  if (kind == CAIRN_BLOCK_TEXT) transcribe_text(a, "\n<text> ");
  if (kind != CAIRN_BLOCK_TOOL_CALL) return;
  transcribe_text(a, "\n<call> ");
  transcribe_text(a, tool_name);
  transcribe_text(a, " ");
}

/* The same for the terminal: reasoning is dim, a call starts with an arrow. */
static void show_block(int32_t kind, const char* tool_name) {
  if (kind == CAIRN_BLOCK_TOOL_CALL) {
    printf("%s\n-> %s ", plain(), tool_name);
  } else {
    printf("%s\n", kind == CAIRN_BLOCK_REASONING ? dim() : plain());
  }
}

/* Shows one event. Returns the code of the turn's failure, if that is what it reports. */
static cairn_code show_event(agent* a, const cairn_event* event, int32_t* open_block) {
  const int32_t kind = cairn_event_kind(event);
  const int32_t block_kind = cairn_event_block_kind(event);
  cairn_tool_call call = CAIRN_TOOL_CALL_INIT;
  size_t n_bytes = 0;
  const char* bytes = cairn_event_bytes(event, &n_bytes);
  if (kind == CAIRN_EVENT_TURN_STARTED) count_reuse(a, event);
  if (kind == CAIRN_EVENT_USAGE) count_usage(a, event);
  if (kind == CAIRN_EVENT_BLOCK_BEGIN && block_kind == CAIRN_BLOCK_TOOL_CALL &&
      cairn_event_get_tool_call(event, &call, NULL) == CAIRN_OK) {
    begin_block(a, block_kind, call.name);
    show_block(block_kind, call.name);
    *open_block = cairn_event_block(event);
  }
  if (kind == CAIRN_EVENT_BLOCK_BYTES) {
    if (*open_block != cairn_event_block(event)) {
      begin_block(a, block_kind, "");
      show_block(block_kind, "");
    }
    *open_block = cairn_event_block(event);
    transcribe(a, bytes, n_bytes);
    fwrite(bytes, 1, n_bytes, stdout);
    fflush(stdout);
  }
  const cairn_error* failure = cairn_event_error(event);
  if (failure == NULL) return CAIRN_OK;
  fprintf(stderr, "tool_loop: the turn failed: %s %s\n", cairn_error_message(failure),
          cairn_error_hint(failure));
  return cairn_error_code(failure);
}

static cairn_code read_turn(agent* a, cairn_turn* turn) {
  int32_t open_block = -1;
  for (;;) {
    cairn_event* event = NULL;
    const cairn_code next = cairn_turn_next(turn, -1, &event, &a->error);
    if (next == CAIRN_NOT_FOUND) break; /* the end was delivered */
    if (next != CAIRN_OK) return next;
    const cairn_code failure = show_event(a, event, &open_block);
    cairn_event_destroy(&event);
    if (failure != CAIRN_OK) return failure;
  }
  transcribe_text(a, "\n");
  puts(plain());
  return CAIRN_OK;
}

static void begin_answer(agent* a, size_t number) {
  char line[64];
  snprintf(line, sizeof line, "== answer %zu ==", number);
  transcribe_text(a, line);
}

static cairn_code answer(agent* a, size_t number, int resume) {
  cairn_turn* turn = NULL;
  cairn_code code = resume
                        ? cairn_session_resume_turn(a->session, &turn, &a->error)
                        : cairn_session_start_turn(a->session, &a->settings.turn, &turn, &a->error);
  if (code != CAIRN_OK) return code;
  a->account.turns += 1;
  a->account.resumed_turns += resume;
  if (resume) printf("%s[answer %zu was interrupted: going on]%s\n", dim(), number, plain());
  begin_answer(a, number);
  code = read_turn(a, turn);
  cairn_turn_destroy(&turn);
  return code;
}

/* ---- Where the conversation stands ---------------------------------------------------------- */

typedef enum step { kAppendSystem, kAppendUser, kAnswer, kResume, kRunTool, kFinished } step;

typedef struct position {
  step next;
  size_t n_answers, n_tasks; /* so far */
  size_t message, call;      /* kRunTool: the call that waits for its result */
} position;

/* The messages since the last task decide. */
static cairn_code find_position(agent* a, cairn_message_list* list, position* where) {
  const settings* s = &a->settings;
  cairn_session_info info = CAIRN_SESSION_INFO_INIT;
  cairn_message message = CAIRN_MESSAGE_INIT;
  size_t n_calls = 0, n_results = 0, n_answers_with_calls = 0;
  int answered = 1;
  memset(where, 0, sizeof *where);
  cairn_code code = cairn_session_get_info(a->session, &info, &a->error);
  for (size_t i = 0; !code && i < cairn_message_list_size(list); ++i) {
    code = cairn_message_list_get(list, i, &message, &a->error);
    if (message.role == CAIRN_ROLE_TOOL) ++n_results;
    if (message.role == CAIRN_ROLE_USER) {
      where->n_tasks += 1;
      n_calls = n_results = n_answers_with_calls = 0;
      answered = 0;
    }
    if (message.role != CAIRN_ROLE_ASSISTANT) continue;
    where->n_answers += 1;
    where->message = i;
    n_calls = message.n_tool_calls;
    n_results = 0;
    n_answers_with_calls += n_calls > 0;
    answered = n_calls == 0;
  }
  where->call = n_results;
  if (info.turn_open) {
    where->next = kResume;
  } else if (cairn_message_list_size(list) == 0) {
    where->next = kAppendSystem;
  } else if (n_results < n_calls) {
    where->next = kRunTool;
  } else if (!answered && n_answers_with_calls < (size_t)s->max_calls) {
    where->next = kAnswer;
  } else {
    where->next = where->n_tasks < s->n_tasks ? kAppendUser : kFinished;
  }
  return code;
}

/* Writes the answers of earlier processes to the transcript, from the session, and tells the tools
 * which results it has. */
static cairn_code take_up_history(agent* a) {
  cairn_message_list* list = NULL;
  cairn_message m = CAIRN_MESSAGE_INIT;
  cairn_tool_call call = CAIRN_TOOL_CALL_INIT;
  size_t n_answers = 0;
  cairn_code code = cairn_session_get_messages(a->session, &list, &a->error);
  for (size_t i = 0; !code && i < cairn_message_list_size(list); ++i) {
    code = cairn_message_list_get(list, i, &m, &a->error);
    if (!code && m.role == CAIRN_ROLE_TOOL) {
      tool_result_stored(a->settings.workspace, m.tool_call_id);
    }
    if (code || m.role != CAIRN_ROLE_ASSISTANT) continue;
    begin_answer(a, ++n_answers);
    if (m.reasoning_bytes > 0) begin_block(a, CAIRN_BLOCK_REASONING, "");
    transcribe(a, m.reasoning, m.reasoning_bytes);
    if (m.text_bytes > 0) begin_block(a, CAIRN_BLOCK_TEXT, "");
    transcribe(a, m.text, m.text_bytes);
    for (size_t j = 0; !code && j < m.n_tool_calls; ++j) {
      code = cairn_message_list_get_tool_call(list, i, j, &call, &a->error);
      if (code) break;
      begin_block(a, CAIRN_BLOCK_TOOL_CALL, call.name);
      transcribe(a, call.arguments_json, call.arguments_bytes);
    }
    transcribe_text(a, "\n");
  }
  cairn_message_list_destroy(&list);
  return code;
}

/* ---- The loop ------------------------------------------------------------------------------- */

static cairn_code use_tool(agent* a, const cairn_message_list* list, const position* where) {
  static tool_result result;
  cairn_tool_call call = CAIRN_TOOL_CALL_INIT;
  cairn_code code =
      cairn_message_list_get_tool_call(list, where->message, where->call, &call, &a->error);
  if (code != CAIRN_OK) return code;
  run_tool(a->settings.workspace, call.id, call.name, call.arguments_json, &result);
  a->account.tools_run += 1;
  printf("%s%s%s\n", dim(), result.text, plain());
  code = cairn_session_append_tool_result(a->session, call.id, CAIRN_CSTRING, result.text,
                                          result.n_bytes, &a->error);
  if (code == CAIRN_OK) tool_result_stored(a->settings.workspace, call.id);
  return code;
}

static cairn_code say_task(agent* a, const char* task) {
  printf("\n%s> %s%s\n", bold(), task, plain());
  return cairn_session_append_user(a->session, task, CAIRN_CSTRING, &a->error);
}

static cairn_code take_step(agent* a, const cairn_message_list* list, const position* where) {
  switch (where->next) {
    case kAppendSystem:
      return cairn_session_append_system(a->session, kInstructions, CAIRN_CSTRING, kToolsJson,
                                         CAIRN_CSTRING, &a->error);
    case kAppendUser:
      return say_task(a, a->settings.tasks[where->n_tasks]);
    case kAnswer:
      return answer(a, where->n_answers + 1, 0);
    case kResume:
      return answer(a, where->n_answers + 1, 1);
    case kRunTool:
      return use_tool(a, list, where);
    case kFinished:
      break;
  }
  return CAIRN_OK;
}

static cairn_code run_agent(agent* a) {
  position where = {kAppendSystem, 0, 0, 0, 0};
  cairn_code code = open_everything(a);
  if (!code) code = take_up_history(a);
  while (!code && where.next != kFinished) {
    cairn_message_list* list = NULL;
    code = cairn_session_get_messages(a->session, &list, &a->error);
    if (!code) code = find_position(a, list, &where);
    if (!code) code = take_step(a, list, &where);
    cairn_message_list_destroy(&list);
  }
  return code;
}

/* ---- The account ---------------------------------------------------------------------------- */

static void write_account(FILE* out, const account* c, const cairn_store_stats* stats) {
  fprintf(out, "turns=%" PRId64 "\nresumed_turns=%" PRId64 "\ntools_run=%" PRId64 "\n", c->turns,
          c->resumed_turns, c->tools_run);
  fprintf(out, "prompt_tokens=%" PRId64 "\nfrom_memory=%" PRId64 "\nfrom_disk=%" PRId64 "\n",
          c->prompt_tokens, c->from_memory, c->from_disk);
  fprintf(out, "replayed=%" PRId64 "\nprefilled=%" PRId64 "\n", c->replayed, c->prefilled);
  fprintf(out, "output_tokens=%" PRId64 "\nresumed_tokens=%" PRId64 "\n", c->output_tokens,
          c->resumed_tokens);
  fprintf(out, "restore_ms=%.3f\nprefill_ms=%.3f\ndecode_ms=%.3f\n", c->restore_ms, c->prefill_ms,
          c->decode_ms);
  fprintf(out, "first_prompt_tokens=%" PRId64 "\nfirst_from_disk=%" PRId64 "\n",
          c->first_prompt_tokens, c->first_from_disk);
  fprintf(out, "first_replayed=%" PRId64 "\nfirst_prefilled=%" PRId64 "\n", c->first_replayed,
          c->first_prefilled);
  fprintf(out, "first_restore_ms=%.3f\nfirst_token_ms=%.3f\n", c->first_restore_ms,
          c->first_token_ms);
  fprintf(out, "bytes_written=%" PRId64 "\nbytes_on_disk=%" PRId64 "\n", c->bytes_written,
          stats->bytes_on_disk);
}

static cairn_code report_account(agent* a) {
  cairn_store_stats stats = CAIRN_STORE_STATS_INIT;
  const cairn_code code = cairn_store_get_stats(a->store, &stats, &a->error);
  if (code != CAIRN_OK || a->settings.account == NULL) return code;
  FILE* out = fopen(a->settings.account, "w");
  if (out != NULL) write_account(out, &a->account, &stats);
  if (out != NULL && fclose(out) == 0) return CAIRN_OK;
  fprintf(stderr, "tool_loop: %s: cannot be written\n", a->settings.account);
  return CAIRN_IO_ERROR;
}

int main(int argc, char** argv) {
  agent a;
  memset(&a, 0, sizeof a);
  a.settings = (settings){
      .session = "agent", .workspace = ".", .turn = CAIRN_TURN_OPTIONS_INIT, .max_calls = 16};
  a.settings.turn.max_tokens = 512;
  if (!parse_arguments(argc, argv, &a.settings)) {
    fputs(kUsage, stderr);
    return 2;
  }
  if (a.settings.transcript != NULL && !(a.transcript = fopen(a.settings.transcript, "wb"))) {
    fprintf(stderr, "tool_loop: %s: cannot be written\n", a.settings.transcript);
    return 1;
  }
  cairn_code code = run_agent(&a);
  if (!code) code = report_account(&a);
  if (a.error != NULL) {
    fprintf(stderr, "tool_loop: %s: %s %s\n", cairn_error_name(a.error),
            cairn_error_message(a.error), cairn_error_hint(a.error));
  }
  close_everything(&a);
  return code == CAIRN_OK ? 0 : 1;
}
