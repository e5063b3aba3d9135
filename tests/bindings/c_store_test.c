/* The store through the C API: the session tree, names and labels, encryption, quota, looking from
 * outside, files of sessions.
 *   c_store_test CHECKPOINT EMPTY_FOLDER */
#include "c_checks.h"

static answer say(cairn_session* session, const char* text) {
  EXPECT_OK(cairn_session_append_user(session, text, CAIRN_CSTRING, &error));
  return ask(session);
}

static int same_answer(const answer* a, const answer* b) {
  return a->n_bytes == b->n_bytes && memcmp(a->text, b->text, a->n_bytes) == 0;
}

static size_t n_messages(const cairn_session* session) {
  cairn_message_list* list = NULL;
  EXPECT_OK(cairn_session_get_messages(session, &list, &error));
  const size_t n = cairn_message_list_size(list);
  cairn_message_list_destroy(&list);
  return n;
}

static void a_rewound_session_says_the_same_again(void) {
  fixture f = open_fixture("rewind");
  cairn_session* session = open_session(&f, "s");
  uint64_t place = 0;
  say(session, "Remember: the key is under the mat.");
  EXPECT_OK(cairn_session_mark(session, "before", CAIRN_CSTRING, 1, &place, &error));
  CHECK(place > 0);
  const answer first = say(session, "Where is it?");
  say(session, "And the spare?");
  CHECK(n_messages(session) == 6);
  EXPECT_OK(cairn_session_rewind(session, place, &error));
  CHECK(n_messages(session) == 2);
  const answer again = say(session, "Where is it?");
  CHECK(same_answer(&first, &again));
  CHECK(again.reuse.exact == 1 && again.reuse.tail_restored == 1 && again.reuse.replayed == 0);
  CHECK(again.reuse.bytes_read > 0);
  EXPECT(CAIRN_NOT_FOUND, cairn_session_rewind(session, 1u << 30, &error));

  cairn_mark_list* marks = NULL;
  cairn_mark mark = CAIRN_MARK_INIT;
  EXPECT_OK(cairn_session_get_marks(session, &marks, &error));
  CHECK(cairn_mark_list_size(marks) == 2); /* the mark and the branch that the rewind left */
  EXPECT_OK(cairn_mark_list_get(marks, 0, &mark, &error));
  CHECK(mark.event == place && strcmp(mark.name, "before") == 0 && mark.has_state == 1);
  CHECK(mark.rewound == 0 && mark.n_tokens > 0 && mark.time_ms > 0);
  EXPECT_OK(cairn_mark_list_get(marks, 1, &mark, &error));
  CHECK(mark.rewound == 1);
  EXPECT(CAIRN_INVALID_ARGUMENT, cairn_mark_list_get(marks, 2, &mark, &error));
  EXPECT_OK(cairn_session_rewind(session, mark.event, &error));
  CHECK(n_messages(session) == 6); /* the branch is still there */
  cairn_mark_list_destroy(&marks);
  cairn_session_destroy(&session);
  close_fixture(&f);
}

static void a_fork_goes_its_own_way(void) {
  fixture f = open_fixture("fork");
  cairn_session* session = open_session(&f, "trunk");
  cairn_session* fork = NULL;
  cairn_session_info info = CAIRN_SESSION_INFO_INIT;
  char trunk_id[33] = "";
  say(session, "One.");
  EXPECT_OK(cairn_session_get_info(session, &info, &error));
  snprintf(trunk_id, sizeof trunk_id, "%s", info.id);
  EXPECT(CAIRN_ALREADY_EXISTS, cairn_session_fork(session, 0, "trunk", 5, &fork, &error));
  EXPECT_OK(cairn_session_fork(session, 0, "branch", CAIRN_CSTRING, &fork, &error));
  EXPECT_OK(cairn_session_get_info(fork, &info, &error));
  CHECK(strcmp(info.forked_from, trunk_id) == 0 && strcmp(info.name, "branch") == 0);
  const answer of_fork = say(fork, "Two.");
  CHECK(of_fork.reuse.prefilled < of_fork.reuse.prompt_tokens / 2); /* shared, not computed again */
  const answer of_trunk = say(session, "Two.");
  CHECK(same_answer(&of_fork, &of_trunk));
  say(session, "Three.");
  CHECK(n_messages(fork) == 4 && n_messages(session) == 6);

  cairn_session_destroy(&session);
  EXPECT_OK(cairn_store_remove(f.store, "trunk", 5, &error));
  CHECK(n_messages(fork) == 4);
  cairn_session_destroy(&fork);
  EXPECT_OK(cairn_session_open(f.model, f.store, "branch", 6, &fork, &error));
  CHECK(n_messages(fork) == 4); /* its text does not depend on the trunk's being there */
  say(fork, "Three.");
  cairn_session_destroy(&fork);
  close_fixture(&f);
}

static void names_and_labels_need_no_model(void) {
  static const char* const kKeys[] = {"project", "owner"};
  static const char* const kValues[] = {"cairn", "M\xC3\xBCller"};
  static const char* const kTwice[] = {"a", "a"};
  fixture f = open_fixture("labels");
  cairn_session* session = open_session(&f, "old");
  cairn_session_list* list = NULL;
  cairn_session_info info = CAIRN_SESSION_INFO_INIT;
  const char* key = NULL;
  const char* value = NULL;
  cairn_session_destroy(&session);
  cairn_model_destroy(&f.model);
  EXPECT_OK(cairn_store_rename(f.store, "old", 3, "new", 3, &error));
  EXPECT(CAIRN_NOT_FOUND, cairn_store_rename(f.store, "old", 3, "x", 1, &error));
  EXPECT_OK(cairn_store_set_labels(f.store, "new", 3, kKeys, kValues, 2, &error));
  EXPECT(CAIRN_INVALID_ARGUMENT,
         cairn_store_set_labels(f.store, "new", 3, kTwice, kValues, 2, &error));
  EXPECT_OK(cairn_store_list(f.store, &list, &error));
  EXPECT_OK(cairn_session_list_get(list, 0, &info, &error));
  CHECK(strcmp(info.name, "new") == 0 && info.n_labels == 2 && strcmp(info.forked_from, "") == 0);
  EXPECT_OK(cairn_session_list_get_label(list, 0, 0, &key, &value, &error));
  CHECK(strcmp(key, "owner") == 0 && strcmp(value, "M\xC3\xBCller") == 0);
  EXPECT(CAIRN_INVALID_ARGUMENT, cairn_session_list_get_label(list, 0, 2, &key, &value, &error));
  cairn_session_list_destroy(&list);
  close_fixture(&f);
}

static void a_store_can_be_looked_at_and_copied_from(void) {
  fixture f = open_fixture("source");
  fixture g = open_fixture("target");
  cairn_store_reader* reader = NULL;
  cairn_session_list* list = NULL;
  cairn_verify_report report = CAIRN_VERIFY_REPORT_INIT;
  cairn_buffer* problems = NULL;
  cairn_session* session = open_session(&f, "s");
  char file[4200];
  say(session, "Hello.");
  EXPECT_OK(cairn_store_reader_open(path_in_folder("source"), CAIRN_CSTRING, NULL, &reader,
                                    &error)); /* while the store is owned */
  EXPECT_OK(cairn_store_reader_list(reader, &list, &error));
  CHECK(cairn_session_list_size(list) == 1);
  cairn_session_list_destroy(&list);
  EXPECT_OK(cairn_store_reader_verify(reader, &report, &problems, &error));
  CHECK(report.n_problems == 0 && report.n_sessions == 1 && report.n_events > 0);
  CHECK(strcmp(cairn_buffer_bytes(problems, NULL), "") == 0);
  cairn_buffer_destroy(&problems);

  snprintf(file, sizeof file, "%s", path_in_folder("s.session"));
  EXPECT_OK(cairn_store_reader_export_session(reader, "s", 1, file, CAIRN_CSTRING, &error));
  EXPECT(CAIRN_ALREADY_EXISTS,
         cairn_store_reader_export_session(reader, "s", 1, file, CAIRN_CSTRING, &error));
  EXPECT(CAIRN_NOT_FOUND,
         cairn_store_reader_export_session(reader, "t", 1, "x", CAIRN_CSTRING, &error));
  EXPECT_OK(cairn_store_import_session(g.store, file, CAIRN_CSTRING, "copy", 4, &error));
  EXPECT(CAIRN_ALREADY_EXISTS,
         cairn_store_import_session(g.store, file, CAIRN_CSTRING, "copy", 4, &error));
  cairn_store_reader_destroy(&reader);
  cairn_session* copy = open_session(&g, "copy");
  CHECK(n_messages(copy) == 2);
  const answer of_copy = say(copy, "Again.");
  const answer of_first = say(session, "Again.");
  CHECK(same_answer(&of_copy, &of_first));
  CHECK(of_copy.reuse.from_disk > 0); /* the state came along */
  cairn_session_destroy(&copy);
  cairn_session_destroy(&session);
  close_fixture(&f);
  close_fixture(&g);
}

static int32_t give_key(void* user, uint8_t* key) {
  memset(key, *(const int*)user, 32);
  return *(const int*)user == 0 ? 7 : 0;
}

static cairn_code open_encrypted(const fixture* f, const cairn_store_options* options,
                                 cairn_store** store, cairn_error** error) {
  return cairn_store_open(f->runtime, path_in_folder("secret"), CAIRN_CSTRING, options, store,
                          error);
}

static void an_encrypted_store_needs_its_key(void) {
  fixture f = open_fixture("plain");
  cairn_store* store = NULL;
  int key = 5;
  cairn_store_options options = CAIRN_STORE_OPTIONS_INIT;
  cairn_store_options passphrase = CAIRN_STORE_OPTIONS_INIT;
  options.key = give_key;
  options.key_user = &key;
  passphrase.passphrase = "open sesame";
  passphrase.passphrase_length = CAIRN_CSTRING;
  EXPECT_OK(open_encrypted(&f, &options, &store, &error));
  cairn_store_destroy(&store);
  EXPECT(CAIRN_INVALID_ARGUMENT, open_encrypted(&f, NULL, &store, &error));
  EXPECT(CAIRN_INVALID_ARGUMENT, open_encrypted(&f, &passphrase, &store, &error));
  key = 6;
  EXPECT(CAIRN_INVALID_ARGUMENT, open_encrypted(&f, &options, &store, &error));
  key = 0;
  EXPECT(CAIRN_CANCELLED, open_encrypted(&f, &options, &store, &error));
  key = 5;
  EXPECT_OK(open_encrypted(&f, &options, &store, &error));
  cairn_store_destroy(&store);
  close_fixture(&f);
}

static void the_store_counts_and_collects(void) {
  fixture f = open_fixture("counts");
  cairn_session* session = open_session(&f, "s");
  cairn_store_stats stats = CAIRN_STORE_STATS_INIT;
  cairn_collect_report report = CAIRN_COLLECT_REPORT_INIT;
  int64_t n_new = -1;
  say(session, "Hello.");
  EXPECT_OK(cairn_store_get_stats(f.store, &stats, &error));
  CHECK(stats.turns == 1 && stats.tokens_generated > 0 && stats.tokens_prefilled > 0);
  CHECK(stats.bytes_committed > 0 && stats.bytes_live > 0 && stats.rolled_back == 0);
  CHECK(stats.quota_bytes > stats.bytes_on_disk && strcmp(stats.recovery_detail, "") == 0);
  EXPECT_OK(cairn_store_count_misses(f.store, CAIRN_MISS_NEW_TOKENS, &n_new, &error));
  CHECK(n_new == 1);
  EXPECT(CAIRN_INVALID_ARGUMENT, cairn_store_count_misses(f.store, 99, &n_new, &error));
  EXPECT_OK(cairn_store_collect(f.store, NULL, &report, &error));
  CHECK(report.bytes_before > 0 && report.bytes_after > 0);
  EXPECT_OK(cairn_store_collect(f.store, NULL, NULL, &error));

  cairn_store* small = NULL;
  cairn_store_options options = CAIRN_STORE_OPTIONS_INIT;
  options.quota_bytes = 1 << 20;
  EXPECT(CAIRN_INVALID_ARGUMENT, cairn_store_open(f.runtime, path_in_folder("small"), CAIRN_CSTRING,
                                                  &options, &small, &error));
  cairn_session_destroy(&session);
  close_fixture(&f);
}

static void session_options_reach_the_session(void) {
  fixture f = open_fixture("options");
  cairn_session* a = NULL;
  cairn_session* b = NULL;
  cairn_session_options options = CAIRN_SESSION_OPTIONS_INIT;
  cairn_open_options open = CAIRN_OPEN_OPTIONS_INIT;
  static const char kText[] = "A text that is long enough for a block or more. ";
  char text[4096] = "";
  for (int i = 0; i < 20; ++i) memcpy(text + i * (sizeof kText - 1), kText, sizeof kText);
  options.durability = CAIRN_DURABILITY_SYNCED;
  options.salt = "a\0b";
  options.salt_bytes = 3;
  EXPECT_OK(cairn_session_create(f.model, f.store, "a", 1, &options, &a, &error));
  options.durability = CAIRN_DURABILITY_BUFFERED;
  options.salt = "a\0c";
  EXPECT_OK(cairn_session_create(f.model, f.store, "b", 1, &options, &b, &error));
  const answer of_a = say(a, text), of_b = say(b, text);
  CHECK(same_answer(&of_a, &of_b));
  CHECK(of_b.reuse.from_disk == 0 && of_b.reuse.from_memory == 0); /* other salt: nothing shared */
  options.durability = 3;
  EXPECT(CAIRN_UNSUPPORTED, cairn_session_create(f.model, f.store, "c", 1, &options, &b, &error));
  cairn_session_destroy(&a);
  open.allow_other_model = 1; /* harmless with the same one */
  EXPECT_OK(cairn_session_open_with_options(f.model, f.store, "a", 1, &open, &a, &error));
  cairn_session_destroy(&a);
  close_fixture(&f);
}

int main(int argc, char** argv) {
  if (argc != 3) return fprintf(stderr, "usage: c_store_test CHECKPOINT EMPTY_FOLDER\n"), 2;
  checkpoint = argv[1];
  folder = argv[2];
#define RUN(test) fprintf(stderr, "%s\n", #test), test()
  RUN(a_rewound_session_says_the_same_again);
  RUN(a_fork_goes_its_own_way);
  RUN(names_and_labels_need_no_model);
  RUN(a_store_can_be_looked_at_and_copied_from);
  RUN(an_encrypted_store_needs_its_key);
  RUN(the_store_counts_and_collects);
  RUN(session_options_reach_the_session);
  fprintf(stderr, "%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
