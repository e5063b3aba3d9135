/* Asks a model one question and prints the answer as it comes. The same STORE keeps the
 * conversation. hello CHECKPOINT STORE "question" */
#include <cairn/cairn.h>
#include <stdio.h>

/* Prints the events of a turn until it ends. */
static cairn_code print_answer(cairn_turn* turn, cairn_error** error) {
  cairn_code code = CAIRN_OK;
  cairn_event* event = NULL;
  while (code == CAIRN_OK && (code = cairn_turn_next(turn, -1, &event, error)) == CAIRN_OK) {
    if (cairn_event_block_kind(event) == CAIRN_BLOCK_TEXT) {
      fputs(cairn_event_bytes(event, NULL), stdout);
      fflush(stdout);
    }
    const cairn_error* failure = cairn_event_error(event);
    if (failure != NULL) fprintf(stderr, "\nhello: %s\n", cairn_error_message(failure));
    if (failure != NULL) code = cairn_error_code(failure);
    cairn_event_destroy(&event);
  }
  return code == CAIRN_NOT_FOUND ? CAIRN_OK : code; /* not found: no events are left */
}

int main(int argc, char** argv) {
  if (argc != 4) return fprintf(stderr, "usage: hello CHECKPOINT STORE QUESTION\n"), 2;
  cairn_runtime* runtime = NULL;
  cairn_model* model = NULL;
  cairn_store* store = NULL;
  cairn_session* session = NULL;
  cairn_turn* turn = NULL;
  cairn_error* error = NULL;
  cairn_turn_options options = CAIRN_TURN_OPTIONS_INIT;
  options.max_tokens = 200;

  cairn_code code = cairn_runtime_create(NULL, &runtime, &error);
  if (!code) code = cairn_model_open(runtime, argv[1], CAIRN_CSTRING, NULL, &model, &error);
  if (!code) code = cairn_store_open(runtime, argv[2], CAIRN_CSTRING, NULL, &store, &error);
  if (!code) code = cairn_session_open_or_create(model, store, "hello", 5, NULL, &session, &error);
  if (!code) code = cairn_session_append_user(session, argv[3], CAIRN_CSTRING, &error);
  if (!code) code = cairn_session_start_turn(session, &options, &turn, &error);
  if (!code) code = print_answer(turn, &error);
  if (error)
    fprintf(stderr, "hello: %s %s\n", cairn_error_message(error), cairn_error_hint(error));
  else
    puts("");

  cairn_error_destroy(&error), cairn_turn_destroy(&turn), cairn_session_destroy(&session);
  cairn_store_destroy(&store), cairn_model_destroy(&model), cairn_runtime_destroy(&runtime);
  return code == CAIRN_OK ? 0 : 1;
}
