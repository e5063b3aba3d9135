/* Threads that use the same handles: a code, never undefined behaviour (run with ThreadSanitizer).
 */
#include <pthread.h>
#include <stdlib.h>

#include "c_checks.h"

enum { kThreads = 6, kRounds = 40 };

typedef struct hammered {
  fixture f;
  cairn_session* session;
  unsigned seed;
  int n_busy, n_done;
} hammered;

static unsigned next_number(unsigned* seed) {
  return (*seed = *seed * 1664525U + 1013904223U) >> 16;
}

/* Another turn may run, there may be no turn to resume, or one that is to be resumed first. What
 * else a code may be is a failure. */
static void count_code(hammered* h, cairn_code code) {
  if (code == CAIRN_BUSY) {
    ++h->n_busy;
  } else if (code == CAIRN_OK || code == CAIRN_NOT_FOUND || code == CAIRN_INVALID_ARGUMENT) {
    ++h->n_done;
  } else {
    fprintf(stderr, "unexpected %s\n", cairn_code_name(code));
    h->n_done = -1000000;
  }
}

static void run_turn(hammered* h, int resume) {
  cairn_turn* turn = NULL;
  cairn_event* event = NULL;
  cairn_turn_options options = short_answer();
  options.max_tokens = 4;
  const cairn_code code = resume ? cairn_session_resume_turn(h->session, &turn, NULL)
                                 : cairn_session_start_turn(h->session, &options, &turn, NULL);
  count_code(h, code);
  if (code != CAIRN_OK) return;
  const int cancel_after = (int)(next_number(&h->seed) % 12);
  for (int i = 0; cairn_turn_next(turn, -1, &event, NULL) == CAIRN_OK; ++i) {
    cairn_event_destroy(&event);
    if (i == cancel_after) cairn_turn_cancel(turn);
    if (i == cancel_after + 1 && cancel_after % 3 == 0) break; /* destroyed while it runs */
  }
  cairn_turn_destroy(&turn);
}

static void* hammer(void* user) {
  hammered* h = user;
  for (int i = 0; i < kRounds; ++i) {
    cairn_session_info info = CAIRN_SESSION_INFO_INIT;
    cairn_message_list* messages = NULL;
    switch (next_number(&h->seed) % 5) {
      case 0:
        count_code(h, cairn_session_append_user(h->session, "x", 1, NULL));
        break;
      case 1:
        run_turn(h, 0);
        break;
      case 2:
        run_turn(h, 1);
        break;
      case 3:
        count_code(h, cairn_session_get_info(h->session, &info, NULL));
        break;
      default:
        count_code(h, cairn_session_get_messages(h->session, &messages, NULL));
        cairn_message_list_destroy(&messages);
    }
  }
  return NULL;
}

static void a_session_that_many_threads_use_says_busy(void) {
  fixture f = open_fixture("hammer");
  cairn_session* session = open_session(&f, "s");
  pthread_t threads[kThreads];
  hammered users[kThreads];
  int n_busy = 0, n_done = 0;
  EXPECT_OK(cairn_session_append_user(session, "Hi", CAIRN_CSTRING, &error));
  for (int i = 0; i < kThreads; ++i) {
    users[i] = (hammered){f, session, 77U + (unsigned)i, 0, 0};
    CHECK(pthread_create(&threads[i], NULL, hammer, &users[i]) == 0);
  }
  for (int i = 0; i < kThreads; ++i) {
    CHECK(pthread_join(threads[i], NULL) == 0);
    n_busy += users[i].n_busy;
    n_done += users[i].n_done;
  }
  CHECK(n_done > 0);
  CHECK(n_busy + n_done == kThreads * kRounds);
  fprintf(stderr, "  %d calls done, %d busy\n", n_done, n_busy);
  EXPECT_OK(cairn_session_append_user(session, "Well?", CAIRN_CSTRING, &error));
  const answer last = ask(session); /* usable as if nothing had been */
  CHECK(last.end_reason != CAIRN_END_ERROR);
  cairn_session_destroy(&session);
  close_fixture(&f);
}

static void* destroy_kind(void* user) {
  void** handles = user;
  cairn_turn_destroy((cairn_turn**)&handles[3]);
  cairn_store_destroy((cairn_store**)&handles[1]);
  cairn_session_destroy((cairn_session**)&handles[2]);
  cairn_model_destroy((cairn_model**)&handles[0]);
  return NULL;
}

static void handles_may_be_destroyed_by_other_threads_while_a_turn_runs(void) {
  for (int i = 0; i < 8; ++i) {
    fixture f = open_fixture("elsewhere");
    cairn_session* session = open_session(&f, "s");
    cairn_turn* turn = NULL;
    cairn_turn_options options = short_answer();
    options.max_tokens = 500;
    EXPECT_OK(cairn_session_append_user(session, "Hi", CAIRN_CSTRING, &error));
    EXPECT_OK(cairn_session_start_turn(session, &options, &turn, &error));
    void* handles[] = {f.model, f.store, session, turn};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, destroy_kind, handles) == 0);
    cairn_runtime_destroy(&f.runtime);
    CHECK(pthread_join(thread, NULL) == 0);
  }
}

/* Reads what one runtime of its own says. */
static void* ask_alone(void* user) {
  answer* out = user;
  cairn_runtime* runtime = NULL;
  cairn_model* model = NULL;
  cairn_store* store = NULL;
  cairn_session* session = NULL;
  cairn_turn* turn = NULL;
  cairn_event* event = NULL;
  const cairn_turn_options options = short_answer();
  char path[4096];
  snprintf(path, sizeof path, "%s/own-%p", folder, user);
  if (cairn_runtime_create(NULL, &runtime, NULL) ||
      cairn_model_open(runtime, checkpoint, CAIRN_CSTRING, NULL, &model, NULL) ||
      cairn_store_open(runtime, path, CAIRN_CSTRING, NULL, &store, NULL) ||
      cairn_session_open_or_create(model, store, "s", 1, NULL, &session, NULL) ||
      cairn_session_append_user(session, "Hi", CAIRN_CSTRING, NULL) ||
      cairn_session_start_turn(session, &options, &turn, NULL)) {
    return NULL;
  }
  while (cairn_turn_next(turn, -1, &event, NULL) == CAIRN_OK) {
    size_t n_bytes = 0;
    const char* bytes = cairn_event_bytes(event, &n_bytes);
    if (cairn_event_kind(event) == CAIRN_EVENT_BLOCK_BYTES) {
      memcpy(out->text + out->n_bytes, bytes, n_bytes);
      out->n_bytes += n_bytes;
    }
    cairn_event_destroy(&event);
  }
  cairn_turn_destroy(&turn);
  cairn_session_destroy(&session);
  cairn_store_destroy(&store);
  cairn_model_destroy(&model);
  cairn_runtime_destroy(&runtime);
  return user;
}

static void runtimes_of_one_process_do_not_know_each_other(void) {
  static answer answers[3];
  pthread_t threads[3];
  for (int i = 0; i < 3; ++i) {
    CHECK(pthread_create(&threads[i], NULL, ask_alone, &answers[i]) == 0);
  }
  for (int i = 0; i < 3; ++i) {
    void* finished = NULL;
    CHECK(pthread_join(threads[i], &finished) == 0 && finished == &answers[i]);
    CHECK(answers[i].n_bytes > 0 && answers[i].n_bytes == answers[0].n_bytes);
    CHECK(memcmp(answers[i].text, answers[0].text, answers[0].n_bytes) == 0);
  }
}

int main(int argc, char** argv) {
  if (argc != 3) return fprintf(stderr, "usage: c_threads_test CHECKPOINT EMPTY_FOLDER\n"), 2;
  checkpoint = argv[1];
  folder = argv[2];
  a_session_that_many_threads_use_says_busy();
  handles_may_be_destroyed_by_other_threads_while_a_turn_runs();
  runtimes_of_one_process_do_not_know_each_other();
  return failures == 0 ? 0 : 1;
}
