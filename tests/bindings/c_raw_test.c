/* cairn_raw.h: tokens in, logits out. */
#include <cairn/cairn_raw.h>
#include <stdlib.h>

#include "c_checks.h"

static int32_t vocabulary(const cairn_model* model) {
  cairn_model_info info = CAIRN_MODEL_INFO_INIT;
  EXPECT_OK(cairn_model_get_info(model, &info, &error));
  return info.vocab_size;
}

static void read_logits(const cairn_raw_sequence* sequence, float* logits, int32_t n) {
  EXPECT_OK(cairn_raw_sequence_logits(sequence, logits, (size_t)n, &error));
}

static void logits_do_not_depend_on_how_tokens_are_appended(void) {
  fixture f = open_fixture("raw");
  const int32_t n_vocab = vocabulary(f.model);
  const size_t n_bytes = (size_t)n_vocab * sizeof(float);
  float* once = malloc(n_bytes);
  float* piecewise = malloc(n_bytes);
  cairn_raw_sequence* a = NULL;
  cairn_raw_sequence* b = NULL;
  int32_t tokens[151];
  for (int i = 0; i < 151; ++i) tokens[i] = 7 + (i * 37) % 200;

  EXPECT_OK(cairn_raw_sequence_create(f.model, &a, &error));
  EXPECT_OK(cairn_raw_sequence_create(f.model, &b, &error));
  EXPECT(CAIRN_NOT_FOUND, cairn_raw_sequence_logits(a, once, (size_t)n_vocab, &error));
  EXPECT_OK(cairn_raw_sequence_append(a, tokens, 151, &error));
  read_logits(a, once, n_vocab);
  for (size_t at = 0; at < 151;) {
    const size_t n = at % 3 == 0 ? 1 : 29;
    const size_t n_left = 151 - at;
    EXPECT_OK(cairn_raw_sequence_append(b, tokens + at, n < n_left ? n : n_left, &error));
    at += n < n_left ? n : n_left;
  }
  read_logits(b, piecewise, n_vocab);
  CHECK(cairn_raw_sequence_position(a) == 151 && cairn_raw_sequence_position(b) == 151);
  CHECK(memcmp(once, piecewise, n_bytes) == 0);

  close_fixture(&f); /* sequences keep the model */
  EXPECT_OK(cairn_raw_sequence_append(a, tokens, 1, &error));
  cairn_raw_sequence_destroy(&a);
  cairn_raw_sequence_destroy(&b);
  CHECK(a == NULL);
  free(once);
  free(piecewise);
}

static void mistakes_change_nothing(void) {
  fixture f = open_fixture("raw_mistakes");
  cairn_model_info info = CAIRN_MODEL_INFO_INIT;
  EXPECT_OK(cairn_model_get_info(f.model, &info, &error));
  cairn_raw_sequence* sequence = NULL;
  const int32_t good[] = {70, 71, 72};
  const int32_t bad[] = {70, -1};
  float one = 0;
  EXPECT(CAIRN_INVALID_ARGUMENT, cairn_raw_sequence_create(NULL, &sequence, &error));
  EXPECT(CAIRN_INVALID_ARGUMENT, cairn_raw_sequence_create(f.model, NULL, &error));
  EXPECT_OK(cairn_raw_sequence_create(f.model, &sequence, &error));
  EXPECT_OK(cairn_raw_sequence_append(sequence, NULL, 0, &error));
  EXPECT_OK(cairn_raw_sequence_append(sequence, good, 3, &error));
  EXPECT(CAIRN_INVALID_ARGUMENT, cairn_raw_sequence_append(sequence, bad, 2, &error));
  EXPECT(CAIRN_INVALID_ARGUMENT, cairn_raw_sequence_append(sequence, NULL, 2, &error));
  EXPECT(CAIRN_INVALID_ARGUMENT, cairn_raw_sequence_append(sequence, &info.vocab_size, 1, &error));
  EXPECT(CAIRN_INVALID_ARGUMENT, cairn_raw_sequence_logits(sequence, &one, 1, &error));
  EXPECT(CAIRN_INVALID_ARGUMENT, cairn_raw_sequence_logits(sequence, NULL, 0, &error));
  CHECK(cairn_raw_sequence_position(sequence) == 3);

  const size_t n_too_many = (size_t)info.max_context;
  int32_t* tokens = malloc(n_too_many * sizeof *tokens);
  for (size_t i = 0; i < n_too_many; ++i) tokens[i] = 70;
  EXPECT(CAIRN_CONTEXT_FULL, cairn_raw_sequence_append(sequence, tokens, n_too_many, &error));
  CHECK(cairn_raw_sequence_position(sequence) == 3);
  free(tokens);

  cairn_raw_sequence_cancel(NULL);
  cairn_raw_sequence_cancel(sequence); /* nothing runs: the next append is not meant */
  EXPECT_OK(cairn_raw_sequence_append(sequence, good, 3, &error));
  CHECK(cairn_raw_sequence_position(sequence) == 6 && cairn_raw_sequence_position(NULL) == 0);
  cairn_raw_sequence_destroy(&sequence);
  cairn_raw_sequence_destroy(NULL);
  close_fixture(&f);
}

int main(int argc, char** argv) {
  if (argc != 3) return fprintf(stderr, "usage: c_raw_test CHECKPOINT EMPTY_FOLDER\n"), 2;
  checkpoint = argv[1];
  folder = argv[2];
  logits_do_not_depend_on_how_tokens_are_appended();
  mistakes_change_nothing();
  return failures == 0 ? 0 : 1;
}
