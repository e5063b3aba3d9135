/* An agent's host as a stranger writes it: sixty turns with tools over the C API alone, with two
 * forks, a rewind, a cancel in the prefill, and two real kills of itself. Each turn computes what
 * was appended since the one before, and the one token that was sampled last; nothing else, ever.
 *
 * c_conversation_test CHECKPOINT EMPTY_FOLDER. The program starts itself again as often as it is
 * killed; what it needs to go on it finds in the session and in one line of a file. */
#include <cairn/cairn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kTurns = 60, kForkA = 15, kForkB = 30, kMark = 20, kRewind = 24, kCancel = 40 };
enum { kKillInAnswer = 43, kKillInPrefill = 52 };

static const char kTools[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"look\", \"parameters\": {\"type\": "
    "\"object\", \"properties\": {\"n\": {\"enum\": [7, 8]}}, \"required\": [\"n\"]}}}]";

/* ---- The host's own memory: one line, replaced as a whole ----------------------------------- */

typedef struct place {
  int turn;  /* the next one */
  int kills; /* so far */
  int forks;
  unsigned long long mark;
} place;

static const char* checkpoint;
static const char* folder;

static void path_of(const char* name, char* path, size_t size) {
  snprintf(path, size, "%s/%s", folder, name);
}

static place read_place(void) {
  place at = {0, 0, 0, 0};
  char path[4096];
  path_of("place", path, sizeof path);
  FILE* file = fopen(path, "r");
  if (file == NULL) return at;
  if (fscanf(file, "%d %d %d %llu", &at.turn, &at.kills, &at.forks, &at.mark) != 4) at.turn = -1;
  fclose(file);
  return at;
}

static void write_place(const place* at) {
  char path[4096], written[4096];
  path_of("place", path, sizeof path);
  path_of("place.new", written, sizeof written);
  FILE* file = fopen(written, "w");
  if (file == NULL) exit(3);
  fprintf(file, "%d %d %d %llu\n", at->turn, at->kills, at->forks, at->mark);
  fclose(file);
  if (rename(written, path) != 0) exit(3);
}

static void die(place* at) {
  ++at->kills;
  write_place(at);
  kill(getpid(), SIGKILL);
}

/* ---- The host ------------------------------------------------------------------------------- */

typedef struct host {
  cairn_runtime* runtime;
  cairn_model* model;
  cairn_store* store;
  cairn_session* session;
  cairn_error* error;
  place at;
} host;

static void check(host* h, cairn_code code, const char* what) {
  if (code == CAIRN_OK) return;
  fprintf(stderr, "turn %d: %s: %s: %s (%s)\n", h->at.turn, what, cairn_error_name(h->error),
          cairn_error_message(h->error), cairn_error_hint(h->error));
  exit(1);
}

static void expect(const host* h, int holds, const char* what, long long a, long long b) {
  if (holds) return;
  fprintf(stderr, "turn %d: %s: %lld and %lld\n", h->at.turn, what, a, b);
  exit(1);
}

static void session_name(const host* h, char* name, size_t size) {
  snprintf(name, size, "talk%d", h->at.forks);
}

static void open_all(host* h) {
  cairn_model_options options = CAIRN_MODEL_OPTIONS_INIT;
  char path[4096], name[32];
  options.prefill_chunk = 16;
  path_of("store", path, sizeof path);
  session_name(h, name, sizeof name);
  check(h, cairn_runtime_create(NULL, &h->runtime, &h->error), "runtime");
  check(h, cairn_store_open(h->runtime, path, CAIRN_CSTRING, NULL, &h->store, &h->error), "store");
  check(h, cairn_model_open(h->runtime, checkpoint, CAIRN_CSTRING, &options, &h->model, &h->error),
        "model");
  check(h,
        cairn_session_open_or_create(h->model, h->store, name, CAIRN_CSTRING, NULL, &h->session,
                                     &h->error),
        "session");
}

/* A host that forgets to close: the process ends in the middle of a turn. */
static void leave_all_open(host* h) {
  static cairn_turn* turn = NULL;
  check(h, cairn_session_append_user(h->session, "One more.", CAIRN_CSTRING, &h->error), "user");
  check(h, cairn_session_start_turn(h->session, NULL, &turn, &h->error), "start");
}

static cairn_session_info info_of(host* h) {
  cairn_session_info info = CAIRN_SESSION_INFO_INIT;
  check(h, cairn_session_get_info(h->session, &info, &h->error), "info");
  return info;
}

/* What one turn said of itself. */
typedef struct account {
  cairn_reuse reuse;
  cairn_usage usage;
  int32_t end_reason;
  int64_t n_done; /* of the prefill, when it was cancelled */
} account;

/* When to interrupt a turn: never, by a cancel in its prefill, by a kill in its prefill, by a kill
 * in its answer. */
enum { kNever, kByCancel, kByKillInPrefill, kByKillInAnswer };

static void look_at(host* h, cairn_turn* turn, const cairn_event* event, int interrupt,
                    account* out) {
  int64_t done = 0, total = 0;
  switch (cairn_event_kind(event)) {
    case CAIRN_EVENT_TURN_STARTED:
      check(h, cairn_event_get_reuse(event, &out->reuse, &h->error), "reuse");
      break;
    case CAIRN_EVENT_PREFILL_PROGRESS:
      cairn_event_get_progress(event, &done, &total);
      out->n_done = done;
      if (interrupt == kByCancel) cairn_turn_cancel(turn);
      if (interrupt == kByKillInPrefill && done < total) die(&h->at);
      break;
    case CAIRN_EVENT_BLOCK_BYTES:
      if (interrupt == kByKillInAnswer) die(&h->at);
      break;
    case CAIRN_EVENT_USAGE:
      check(h, cairn_event_get_usage(event, &out->usage, &h->error), "usage");
      break;
    case CAIRN_EVENT_TURN_END:
      out->end_reason = cairn_event_end_reason(event);
      h->error = NULL;
      expect(h, cairn_event_error(event) == NULL, cairn_error_message(cairn_event_error(event)), 0,
             0);
      break;
    default:
      break;
  }
}

static account read_turn(host* h, cairn_turn* turn, int interrupt) {
  account out;
  cairn_event* event = NULL;
  memset(&out, 0, sizeof out);
  out.reuse.struct_size = sizeof out.reuse;
  out.usage.struct_size = sizeof out.usage;
  while (cairn_turn_next(turn, -1, &event, &h->error) == CAIRN_OK) {
    look_at(h, turn, event, interrupt, &out);
    cairn_event_destroy(&event);
  }
  cairn_turn_destroy(&turn);
  return out;
}

static int calls_a_tool(int turn) { return turn % 14 == 1; }

static account take_turn(host* h, int interrupt) {
  cairn_turn_options options = CAIRN_TURN_OPTIONS_INIT;
  cairn_turn* turn = NULL;
  options.seed = (uint64_t)h->at.turn;
  options.max_tokens = calls_a_tool(h->at.turn) ? 200 : 4;
  options.constrain_tools = 1;
  options.tool_choice =
      calls_a_tool(h->at.turn) ? CAIRN_TOOL_CHOICE_REQUIRED : CAIRN_TOOL_CHOICE_NONE;
  if (calls_a_tool(h->at.turn)) options.max_tool_calls = 1;
  check(h, cairn_session_start_turn(h->session, &options, &turn, &h->error), "start");
  return read_turn(h, turn, interrupt);
}

static account resume_turn(host* h) {
  cairn_turn* turn = NULL;
  check(h, cairn_session_resume_turn(h->session, &turn, &h->error), "resume");
  return read_turn(h, turn, kNever);
}

/* The result of the call that the last answer made, if it made one; or what the user says. */
static void append_next(host* h) {
  cairn_message_list* list = NULL;
  cairn_message last = CAIRN_MESSAGE_INIT;
  cairn_tool_call call = CAIRN_TOOL_CALL_INIT;
  char text[1024];
  check(h, cairn_session_get_messages(h->session, &list, &h->error), "messages");
  const size_t n = cairn_message_list_size(list);
  if (n > 0) check(h, cairn_message_list_get(list, n - 1, &last, &h->error), "message");
  if (n == 0) {
    check(h,
          cairn_session_append_system(h->session, "You look.", CAIRN_CSTRING, kTools, CAIRN_CSTRING,
                                      &h->error),
          "system");
  }
  snprintf(text, sizeof text, "step %d", h->at.turn);
  if (h->at.turn == kCancel || h->at.turn == kKillInPrefill) {
    for (int i = 0; i < 40; ++i) strcat(text, " and so on");
  }
  for (size_t i = 0; i < last.n_tool_calls; ++i) {
    check(h, cairn_message_list_get_tool_call(list, n - 1, i, &call, &h->error), "call");
    expect(h, strcmp(call.name, "look") == 0, "a call of another tool", 0, 0);
    check(h,
          cairn_session_append_tool_result(h->session, call.id, CAIRN_CSTRING, text, CAIRN_CSTRING,
                                           &h->error),
          "result");
  }
  if (last.n_tool_calls == 0) {
    check(h, cairn_session_append_user(h->session, text, CAIRN_CSTRING, &h->error), "user");
  }
  cairn_message_list_destroy(&list);
}

/* `known`: tokens of the session before this turn's message. All of them but the one sampled last
 * have their state, in memory or on disk. */
static void expect_only_the_new(host* h, const account* said, int64_t known) {
  const int64_t appended = said->reuse.prompt_tokens - known;
  const int64_t sampled_last = known > 0 ? 1 : 0;
  expect(h, said->reuse.prefilled == appended + sampled_last,
         "prefilled, and appended with the token sampled last", said->reuse.prefilled,
         appended + sampled_last);
  expect(h, said->reuse.exact == 1, "not exact", 0, 0);
  expect(h, said->reuse.lost_tokens <= (said->reuse.cause == CAIRN_MISS_HEAD_MOVED ? 2 : 0),
         "lost tokens, allowed", said->reuse.lost_tokens, 0);
  printf(
      "turn %2d: %5lld prompt = %5lld memory + %5lld disk + %4lld prefilled; %3lld appended, "
      "%lld sampled last; %3lld out\n",
      h->at.turn, (long long)said->reuse.prompt_tokens, (long long)said->reuse.from_memory,
      (long long)said->reuse.from_disk, (long long)said->reuse.prefilled, (long long)appended,
      (long long)sampled_last, (long long)said->usage.output_tokens);
}

static void go_on_after_a_kill(host* h) {
  const account said = resume_turn(h);
  /* What the prompt had before this turn's message was there; so was all that the log has. */
  printf(
      "turn %2d: resumed: %lld memory, %lld disk, %lld replayed, %lld prefilled of %lld; %lld of "
      "%lld answer tokens were in the log\n",
      h->at.turn, (long long)said.reuse.from_memory, (long long)said.reuse.from_disk,
      (long long)said.reuse.replayed, (long long)said.reuse.prefilled,
      (long long)said.reuse.prompt_tokens, (long long)said.usage.resumed_tokens,
      (long long)said.usage.output_tokens);
  expect(h, said.end_reason != CAIRN_END_ERROR, "end", said.end_reason, 0);
}

static void cancel_and_resume(host* h, int64_t known) {
  const account stopped = take_turn(h, kByCancel);
  expect(h, stopped.end_reason == CAIRN_END_CANCELLED, "end", stopped.end_reason, 0);
  expect(h, stopped.n_done < stopped.reuse.prompt_tokens, "cancelled after the prefill", 0, 0);
  const account said = resume_turn(h);
  const int64_t appended = said.reuse.prompt_tokens - known;
  printf("turn %2d: cancelled at %lld, then %lld prefilled; %lld appended\n", h->at.turn,
         (long long)stopped.n_done, (long long)said.reuse.prefilled, (long long)appended);
  expect(h, said.reuse.from_memory >= stopped.n_done, "kept of the cancelled prefill",
         said.reuse.from_memory, stopped.n_done);
  expect(h, said.reuse.from_memory + said.reuse.prefilled == said.reuse.prompt_tokens,
         "not from memory", said.reuse.from_memory, said.reuse.prefilled);
}

static void fork_the_session(host* h) {
  cairn_session* fork = NULL;
  char name[32];
  ++h->at.forks;
  session_name(h, name, sizeof name);
  check(h, cairn_session_fork(h->session, 0, name, CAIRN_CSTRING, &fork, &h->error), "fork");
  cairn_session_destroy(&h->session);
  h->session = fork;
}

static void change_course(host* h) {
  uint64_t mark = 0;
  switch (h->at.turn) {
    case kForkA:
    case kForkB:
      fork_the_session(h);
      break;
    case kMark:
      check(h, cairn_session_mark(h->session, "here", CAIRN_CSTRING, 1, &mark, &h->error), "mark");
      h->at.mark = mark;
      break;
    case kRewind:
      check(h, cairn_session_rewind(h->session, h->at.mark, &h->error), "rewind");
      break;
    default:
      break;
  }
}

static int talk(void) {
  static host h; /* all NULL */
  h.at = read_place();
  open_all(&h);
  for (; h.at.turn < kTurns; ++h.at.turn, write_place(&h.at)) {
    const cairn_session_info before = info_of(&h);
    if (before.turn_open) {
      go_on_after_a_kill(&h);
    } else {
      append_next(&h);
      if (h.at.turn == kCancel) {
        cancel_and_resume(&h, before.n_tokens);
      } else {
        const int interrupt = h.at.turn == kKillInAnswer    ? kByKillInAnswer
                              : h.at.turn == kKillInPrefill ? kByKillInPrefill
                                                            : kNever;
        const account said = take_turn(&h, interrupt);
        expect_only_the_new(&h, &said, before.n_tokens);
        const int has_called = said.end_reason == CAIRN_END_TOOL_CALLS ||
                               said.end_reason == CAIRN_END_CALL_LIMIT; /* would call again */
        expect(&h, has_called == calls_a_tool(h.at.turn), "end", said.end_reason,
               calls_a_tool(h.at.turn));
        expect(&h, info_of(&h).n_tokens == said.usage.context_used, "tokens of the session",
               info_of(&h).n_tokens, said.usage.context_used);
      }
    }
    change_course(&h);
  }
  expect(&h, h.at.kills == 2 && h.at.forks == 2, "kills, forks", h.at.kills, h.at.forks);
  leave_all_open(&h);
  return 0;
}

int main(int argc, char** argv) {
  if (argc != 3) return fprintf(stderr, "usage: c_conversation_test CHECKPOINT EMPTY_FOLDER\n"), 2;
  checkpoint = argv[1];
  folder = argv[2];
  setvbuf(stdout, NULL, _IOLBF, 0); /* a kill takes what is buffered */
  for (int n_lives = 1; n_lives <= 3; ++n_lives) {
    int status = 0;
    fflush(stdout);
    const pid_t child = fork(); /* this process has not used the library */
    if (child == 0) exit(talk());
    if (child < 0 || waitpid(child, &status, 0) != child) return 1;
    if (WIFEXITED(status)) return n_lives == 3 ? WEXITSTATUS(status) : 1;
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) return 1;
    printf("killed\n");
  }
  return 1;
}
