// The passes of the model that torch is slow at, forward and backward, for one thread. fast_ops.py
// compiles this file with the shape as macros and calls it; ops.py holds the same as formulas.
//
//   HEADS    query heads, a divisor of 16 WIDTH   head_dim, a multiple of 16
//   STREAMS  residual streams, 4          DIM     hidden size, a multiple of 16
//   INDEX_HEADS, INDEX_WIDTH              of the indexer, width a multiple of 16
//
// All arrays are dense f32 unless a parameter says otherwise. `n` counts tokens of the batch in a
// row, `t` tokens of one row. Gradient outputs are written, except where "added" is said.
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef float v16 __attribute__((vector_size(64), aligned(4)));
typedef int32_t i16x __attribute__((vector_size(64)));

_Static_assert(16 % HEADS == 0 && WIDTH % 16 == 0 && DIM % 16 == 0 && INDEX_WIDTH % 16 == 0,
               "not a shape for vectors of 16");

enum { kPack = 16 / HEADS, kChunks = WIDTH / 16, kMix = STREAMS * (2 + STREAMS) };

static inline v16 load(const float* x) { return *(const v16*)x; }
static inline void store(float* x, v16 v) { *(v16*)x = v; }
static inline v16 all(float x) { return (v16){0} + x; }

static inline float sum16(v16 v) {
  float s = 0;
  for (int i = 0; i < 16; ++i) s += v[i];
  return s;
}

// Lane i of the result is the sum of the lanes of a[i]. Overwrites a.
static inline v16 sums_of(v16 a[16]) {
  const i16x lo8 = {0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23};
  const i16x hi8 = {8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31};
  const i16x lo4 = {0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27};
  const i16x hi4 = {4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31};
  const i16x lo2 = {0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29};
  const i16x hi2 = {2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23, 26, 27, 30, 31};
  const i16x lo1 = {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30};
  const i16x hi1 = {1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31};
  for (int i = 0; i < 8; ++i)
    a[i] = __builtin_shuffle(a[2 * i], a[2 * i + 1], lo8) +
           __builtin_shuffle(a[2 * i], a[2 * i + 1], hi8);
  for (int i = 0; i < 4; ++i)
    a[i] = __builtin_shuffle(a[2 * i], a[2 * i + 1], lo4) +
           __builtin_shuffle(a[2 * i], a[2 * i + 1], hi4);
  for (int i = 0; i < 2; ++i)
    a[i] = __builtin_shuffle(a[2 * i], a[2 * i + 1], lo2) +
           __builtin_shuffle(a[2 * i], a[2 * i + 1], hi2);
  return __builtin_shuffle(a[0], a[1], lo1) + __builtin_shuffle(a[0], a[1], hi1);
}

// ---- Attention ----------------------------------------------------------------------------------

typedef struct {
  int64_t batch, t, g, window, ratio, top_k;
  const int32_t* list;  // [batch, t, top_k] ascending, -1 = none; null = all visible entries
} Sight;

static const float zero_row[WIDTH];

// Offsets of the keys that query p of batch row b sees: window keys 0..t-1, entry j as t + j.
// Returns how many.
static int64_t seen_keys(const Sight* s, int64_t b, int64_t p, int64_t* keys) {
  int64_t n = 0;
  for (int64_t j = p - s->window + 1 < 0 ? 0 : p - s->window + 1; j <= p; ++j) keys[n++] = j;
  if (s->g == 0) return n;
  const int64_t visible = (p + 1) / s->ratio;
  if (s->list == NULL) {
    for (int64_t j = 0; j < visible; ++j) keys[n++] = s->t + j;
    return n;
  }
  const int32_t* list = s->list + (b * s->t + p) * s->top_k;
  for (int64_t i = 0; i < s->top_k && list[i] >= 0; ++i) keys[n++] = s->t + list[i];
  return n;
}

// out[j * HEADS + h] = q[h] . key j, for n keys rounded up to kPack; those beyond n give -1e30.
static void dots(const float* q, const float* const* rows, int64_t n, float pad, float* out) {
  for (int64_t j = 0; j < n; j += kPack) {
    v16 sums[16];
    for (int i = 0; i < kPack; ++i) {
      const float* k = j + i < n ? rows[j + i] : zero_row;
      for (int h = 0; h < HEADS; ++h) {
        v16 s = load(q + h * WIDTH) * load(k);
        for (int c = 1; c < kChunks; ++c) s += load(q + h * WIDTH + 16 * c) * load(k + 16 * c);
        sums[i * HEADS + h] = s;
      }
    }
    store(out + j * HEADS, sums_of(sums));
  }
  const int64_t rounded = (n + kPack - 1) / kPack * kPack;
  for (int64_t i = n * HEADS; i < rounded * HEADS; ++i) out[i] = pad;
}

static int64_t most_keys(const Sight* s) {
  return s->window + (s->g > 0 ? (s->list ? s->top_k : s->g) : 0) + 16;
}

// q [batch, t, HEADS, WIDTH] already scaled, window keys [batch, t, WIDTH], main [batch, g, WIDTH],
// sink [HEADS]. Writes out like q and lse [batch, t, HEADS].
void attention_forward(const Sight* s, const float* q, const float* window, const float* main,
                       const float* sink, float* out, float* lse) {
  const int64_t most = most_keys(s);
  int64_t* keys = malloc(most * sizeof(int64_t));
  const float** rows = malloc(most * sizeof(float*));
  float* p = malloc((most + kPack) * HEADS * sizeof(float));
  for (int64_t b = 0; b < s->batch; ++b) {
    for (int64_t i = 0; i < s->t; ++i) {
      const int64_t at = b * s->t + i;
      const int64_t n = seen_keys(s, b, i, keys);
      for (int64_t j = 0; j < n; ++j)
        rows[j] = keys[j] < s->t ? window + (b * s->t + keys[j]) * WIDTH
                                 : main + (b * s->g + keys[j] - s->t) * WIDTH;
      dots(q + at * HEADS * WIDTH, rows, n, -1e30f, p);
      const int64_t n_scores = (n + kPack - 1) / kPack * 16;
      float top[16], total[16];
      for (int l = 0; l < 16; ++l) top[l] = sink[l % HEADS];
      for (int64_t j = 0; j < n_scores; j += 16)
        for (int l = 0; l < 16; ++l) top[l] = p[j + l] > top[l] ? p[j + l] : top[l];
      for (int l = HEADS; l < 16; ++l)
        top[l % HEADS] = top[l] > top[l % HEADS] ? top[l] : top[l % HEADS];
      for (int l = 0; l < 16; ++l) top[l] = top[l % HEADS], total[l] = 0;
      for (int64_t j = 0; j < n_scores; j += 16)
        for (int l = 0; l < 16; ++l) {
          p[j + l] = expf(p[j + l] - top[l]);
          total[l] += p[j + l];
        }
      for (int l = HEADS; l < 16; ++l) total[l % HEADS] += total[l];
      v16 sum[HEADS][kChunks];
      memset(sum, 0, sizeof sum);
      for (int64_t j = 0; j < n; ++j)
        for (int h = 0; h < HEADS; ++h)
          for (int c = 0; c < kChunks; ++c) sum[h][c] += p[j * HEADS + h] * load(rows[j] + 16 * c);
      for (int h = 0; h < HEADS; ++h) {
        const float z = total[h] + expf(sink[h] - top[h]);
        lse[at * HEADS + h] = top[h] + logf(z);
        for (int c = 0; c < kChunks; ++c)
          store(out + (at * HEADS + h) * WIDTH + 16 * c, sum[h][c] * (1 / z));
      }
    }
  }
  free(keys), free(rows), free(p);
}

// Gradients of the above; d_window and d_main and d_sink have to be zero on entry and are added to.
void attention_backward(const Sight* s, const float* q, const float* window, const float* main,
                        const float* sink, const float* out, const float* lse, const float* d_out,
                        float* d_q, float* d_window, float* d_main, float* d_sink) {
  const int64_t most = most_keys(s);
  int64_t* keys = malloc(most * sizeof(int64_t));
  const float** rows = malloc(most * sizeof(float*));
  float* p = malloc((most + kPack) * HEADS * sizeof(float));
  float* dp = malloc((most + kPack) * HEADS * sizeof(float));
  for (int64_t b = 0; b < s->batch; ++b) {
    for (int64_t i = 0; i < s->t; ++i) {
      const int64_t at = b * s->t + i;
      const float* my_q = q + at * HEADS * WIDTH;
      const float* my_d = d_out + at * HEADS * WIDTH;
      const int64_t n = seen_keys(s, b, i, keys);
      for (int64_t j = 0; j < n; ++j)
        rows[j] = keys[j] < s->t ? window + (b * s->t + keys[j]) * WIDTH
                                 : main + (b * s->g + keys[j] - s->t) * WIDTH;
      dots(my_q, rows, n, -1e30f, p);
      dots(my_d, rows, n, 0, dp);
      float delta[16], z[16];
      for (int h = 0; h < HEADS; ++h) {
        v16 d = all(0);
        for (int c = 0; c < kChunks; ++c)
          d += load(my_d + h * WIDTH + 16 * c) * load(out + (at * HEADS + h) * WIDTH + 16 * c);
        delta[h] = sum16(d);
        z[h] = lse[at * HEADS + h];
        d_sink[h] -= expf(sink[h] - z[h]) * delta[h];
      }
      for (int l = HEADS; l < 16; ++l) delta[l] = delta[l % HEADS], z[l] = z[l % HEADS];
      const int64_t n_scores = (n + kPack - 1) / kPack * 16;
      for (int64_t j = 0; j < n_scores; j += 16)
        for (int l = 0; l < 16; ++l) {
          p[j + l] = expf(p[j + l] - z[l]);
          dp[j + l] = p[j + l] * (dp[j + l] - delta[l]);
        }
      v16 sum[HEADS][kChunks];
      memset(sum, 0, sizeof sum);
      for (int64_t j = 0; j < n; ++j) {
        float* d_row = keys[j] < s->t ? d_window + (b * s->t + keys[j]) * WIDTH
                                      : d_main + (b * s->g + keys[j] - s->t) * WIDTH;
        for (int c = 0; c < kChunks; ++c) {
          const v16 k = load(rows[j] + 16 * c);
          v16 d = load(d_row + 16 * c);
          for (int h = 0; h < HEADS; ++h) {
            sum[h][c] += dp[j * HEADS + h] * k;
            d += dp[j * HEADS + h] * load(my_q + h * WIDTH + 16 * c) +
                 p[j * HEADS + h] * load(my_d + h * WIDTH + 16 * c);
          }
          store(d_row + 16 * c, d);
        }
      }
      for (int h = 0; h < HEADS; ++h)
        for (int c = 0; c < kChunks; ++c) store(d_q + (at * HEADS + h) * WIDTH + 16 * c, sum[h][c]);
    }
  }
  free(keys), free(rows), free(p), free(dp);
}

// ---- Selection ----------------------------------------------------------------------------------

// The k-th largest of x[0..n), 1 <= k <= n. Reorders x.
static float kth_largest(float* x, int64_t n, int64_t k) {
  int64_t low = 0, high = n - 1;
  while (low < high) {
    const float pivot = x[low + (high - low) / 2];
    int64_t i = low, j = high;
    while (i <= j) {
      while (x[i] > pivot) ++i;
      while (x[j] < pivot) --j;
      if (i <= j) {
        const float swap = x[i];
        x[i++] = x[j];
        x[j--] = swap;
      }
    }
    if (k - 1 <= j) {
      high = j;
    } else if (k - 1 >= i) {
      low = i;
    } else {
      break;
    }
  }
  return x[k - 1];
}

// Marks the k highest of scores[0..n); ties go to the lower index. `work` has room for n.
static void mark_highest(const float* scores, int64_t n, int64_t k, uint8_t* marks, float* work) {
  if (n <= k) {
    for (int64_t j = 0; j < n; ++j) marks[j] = 1;
    return;
  }
  memcpy(work, scores, n * sizeof(float));
  const float least = kth_largest(work, n, k);
  int64_t above = 0;
  for (int64_t j = 0; j < n; ++j) above += scores[j] > least;
  int64_t ties = k - above;
  for (int64_t j = 0; j < n; ++j) {
    marks[j] = scores[j] > least;
    if (scores[j] == least && ties > 0) marks[j] = 1, --ties;
  }
}

typedef struct {
  int64_t batch, t, g, ratio, top_k;
  int64_t top_blocks, block;  // of the candidate pool
  int64_t mode;               // 0 no pool, 1 writes it, 2 reads it
} Search;

// Index scores and top-k (8.3 to 8.5). q [batch, t, INDEX_HEADS, INDEX_WIDTH], w [batch, t,
// INDEX_HEADS], keys [batch, g, INDEX_WIDTH]; pool [batch, t, ceil(g / block)] bytes; writes
// list [batch, t, top_k], ascending, -1 padded.
void select_entries(const Search* s, const float* q, const float* w, const float* keys,
                    uint8_t* pool, int32_t* list) {
  const int64_t n_blocks = s->mode ? (s->g + s->block - 1) / s->block : 0;
  float* scores = malloc((s->g + 16) * sizeof(float));
  float* work = malloc((s->g + 16) * sizeof(float));
  float* best = malloc((n_blocks + 1) * sizeof(float));
  uint8_t* marks = malloc(s->g + 16);
  for (int64_t at = 0; at < s->batch * s->t; ++at) {
    const int64_t b = at / s->t, p = at % s->t, n = (p + 1) / s->ratio;
    const float* my_q = q + at * INDEX_HEADS * INDEX_WIDTH;
    for (int64_t j = 0; j < n; ++j) {
      const float* k = keys + (b * s->g + j) * INDEX_WIDTH;
      float sum = 0;
      for (int h = 0; h < INDEX_HEADS; ++h) {
        v16 d = all(0);
        for (int c = 0; c < INDEX_WIDTH; c += 16)
          d += load(my_q + h * INDEX_WIDTH + c) * load(k + c);
        const float dot = sum16(d);
        sum += dot > 0 ? dot * w[at * INDEX_HEADS + h] : 0;
      }
      scores[j] = sum;
    }
    if (s->mode == 1) {
      const int64_t used = (n + s->block - 1) / s->block;
      memset(pool + at * n_blocks, 0, n_blocks);
      for (int64_t j = 0; j < n; ++j) {
        const int64_t i = j / s->block;
        best[i] = j % s->block == 0 || scores[j] > best[i] ? scores[j] : best[i];
      }
      if (n > 0) best[(n - 1) / s->block] = 3e38f;
      mark_highest(best, used, s->top_blocks, pool + at * n_blocks, work);
    } else if (s->mode == 2) {
      for (int64_t j = 0; j < n; ++j)
        if (!pool[at * n_blocks + j / s->block]) scores[j] = -3e38f;
    }
    mark_highest(scores, n, s->top_k, marks, work);
    int32_t* out = list + at * s->top_k;
    int64_t count = 0;
    for (int64_t j = 0; j < n; ++j)
      if (marks[j] && scores[j] > -3e38f) out[count++] = (int32_t)j;
    for (; count < s->top_k; ++count) out[count] = -1;
  }
  free(scores), free(work), free(best), free(marks);
}

// ---- Hyper-connections --------------------------------------------------------------------------

static inline float dot_dim(const float* a, const float* b) {
  v16 s = all(0);
  for (int i = 0; i < DIM; i += 16) s += load(a + i) * load(b + i);
  return sum16(s);
}

// x [n, DIM] = rms_norm(sum over s of pre[n, s] h[n, s]) * weight; inverse_rms [n] of that sum and
// inverse_all [n] of all streams, both for the backward pass.
void streams_in_forward(int64_t n, const float* h, const float* pre, const float* weight, float eps,
                        float* x, float* inverse_rms, float* inverse_all) {
  for (int64_t i = 0; i < n; ++i) {
    const float* my_h = h + i * STREAMS * DIM;
    float sum[DIM];
    v16 square = all(0), whole = all(0);
    for (int c = 0; c < DIM; c += 16) {
      v16 v = all(0);
      for (int s = 0; s < STREAMS; ++s) {
        const v16 one = load(my_h + s * DIM + c);
        v += pre[i * STREAMS + s] * one;
        whole += one * one;
      }
      store(sum + c, v);
      square += v * v;
    }
    const float r = 1 / sqrtf(sum16(square) / DIM + eps);
    inverse_rms[i] = r;
    inverse_all[i] = 1 / sqrtf(sum16(whole) / (STREAMS * DIM) + eps);
    for (int c = 0; c < DIM; c += 16) store(x + i * DIM + c, load(sum + c) * r * load(weight + c));
  }
}

// d_h is added to what it holds; `along` [n] is a factor of h itself in d_h, from the coefficients.
void streams_in_backward(int64_t n, const float* h, const float* pre, const float* weight,
                         const float* inverse_rms, const float* d_x, const float* along, float* d_h,
                         float* d_pre, float* d_weight) {
  float weight_sum[DIM];
  memset(weight_sum, 0, sizeof weight_sum);
  for (int64_t i = 0; i < n; ++i) {
    const float* my_h = h + i * STREAMS * DIM;
    const float r = inverse_rms[i];
    float sum[DIM], d_sum[DIM];
    v16 dot = all(0);
    for (int c = 0; c < DIM; c += 16) {
      v16 v = all(0);
      for (int s = 0; s < STREAMS; ++s) v += pre[i * STREAMS + s] * load(my_h + s * DIM + c);
      const v16 d = load(d_x + i * DIM + c);
      store(weight_sum + c, load(weight_sum + c) + d * v * r);
      const v16 dw = d * load(weight + c);
      store(sum + c, v);
      store(d_sum + c, dw);
      dot += dw * v;
    }
    const float back = sum16(dot) * r * r / DIM;
    v16 d_pre_sum[STREAMS];
    memset(d_pre_sum, 0, sizeof d_pre_sum);
    for (int c = 0; c < DIM; c += 16) {
      const v16 d = (load(d_sum + c) - back * load(sum + c)) * r;
      for (int s = 0; s < STREAMS; ++s) {
        const v16 one = load(my_h + s * DIM + c);
        float* out = d_h + (i * STREAMS + s) * DIM + c;
        store(out, load(out) + pre[i * STREAMS + s] * d + along[i] * one);
        d_pre_sum[s] += d * one;
      }
    }
    for (int s = 0; s < STREAMS; ++s) d_pre[i * STREAMS + s] = sum16(d_pre_sum[s]);
  }
  memcpy(d_weight, weight_sum, sizeof weight_sum);
}

// out[j] = post[j] y + sum over i of comb[i][j] h[i].
void streams_out_forward(int64_t n, const float* y, const float* h, const float* post,
                         const float* comb, float* out) {
  for (int64_t t = 0; t < n; ++t)
    for (int c = 0; c < DIM; c += 16) {
      const v16 v = load(y + t * DIM + c);
      v16 in[STREAMS];
      for (int i = 0; i < STREAMS; ++i) in[i] = load(h + (t * STREAMS + i) * DIM + c);
      for (int j = 0; j < STREAMS; ++j) {
        v16 sum = post[t * STREAMS + j] * v;
        for (int i = 0; i < STREAMS; ++i) sum += comb[(t * STREAMS + i) * STREAMS + j] * in[i];
        store(out + (t * STREAMS + j) * DIM + c, sum);
      }
    }
}

void streams_out_backward(int64_t n, const float* y, const float* h, const float* post,
                          const float* comb, const float* d_out, float* d_y, float* d_h,
                          float* d_post, float* d_comb) {
  for (int64_t t = 0; t < n; ++t) {
    v16 post_sum[STREAMS], comb_sum[STREAMS][STREAMS];
    memset(post_sum, 0, sizeof post_sum);
    memset(comb_sum, 0, sizeof comb_sum);
    for (int c = 0; c < DIM; c += 16) {
      const v16 v = load(y + t * DIM + c);
      v16 d[STREAMS], d_v = all(0);
      for (int j = 0; j < STREAMS; ++j) {
        d[j] = load(d_out + (t * STREAMS + j) * DIM + c);
        d_v += post[t * STREAMS + j] * d[j];
        post_sum[j] += v * d[j];
      }
      store(d_y + t * DIM + c, d_v);
      for (int i = 0; i < STREAMS; ++i) {
        const v16 in = load(h + (t * STREAMS + i) * DIM + c);
        v16 sum = all(0);
        for (int j = 0; j < STREAMS; ++j) {
          sum += comb[(t * STREAMS + i) * STREAMS + j] * d[j];
          comb_sum[i][j] += in * d[j];
        }
        store(d_h + (t * STREAMS + i) * DIM + c, sum);
      }
    }
    for (int j = 0; j < STREAMS; ++j) d_post[t * STREAMS + j] = sum16(post_sum[j]);
    for (int i = 0; i < STREAMS; ++i)
      for (int j = 0; j < STREAMS; ++j)
        d_comb[(t * STREAMS + i) * STREAMS + j] = sum16(comb_sum[i][j]);
  }
}

enum { kLanes = 16, kCells = STREAMS * STREAMS };

// Coefficients of 16 tokens at once: m [kMix][16] are projections times the inverse norm.
static void balance(float c[kCells][kLanes], int64_t iterations, float eps,
                    float history[][kCells][kLanes]) {
  for (int i = 0; i < STREAMS; ++i)
    for (int l = 0; l < kLanes; ++l) {
      float top = c[i * STREAMS][l], sum = 0;
      for (int j = 1; j < STREAMS; ++j)
        top = c[i * STREAMS + j][l] > top ? c[i * STREAMS + j][l] : top;
      for (int j = 0; j < STREAMS; ++j) {
        c[i * STREAMS + j][l] = expf(c[i * STREAMS + j][l] - top);
        sum += c[i * STREAMS + j][l];
      }
      for (int j = 0; j < STREAMS; ++j) c[i * STREAMS + j][l] = c[i * STREAMS + j][l] / sum;
    }
  memcpy(history[0], c, sizeof history[0]);
  for (int i = 0; i < kCells; ++i)
    for (int l = 0; l < kLanes; ++l) c[i][l] += eps;
  // Step 1 divides columns, step 2 rows, and so on: 2 * iterations - 1 divisions in all.
  for (int64_t step = 1; step < 2 * iterations; ++step) {
    memcpy(history[step], c, sizeof history[step]);
    const int along = step % 2 ? STREAMS : 1, across = step % 2 ? 1 : STREAMS;
    for (int i = 0; i < STREAMS; ++i)
      for (int l = 0; l < kLanes; ++l) {
        float sum = eps;
        for (int j = 0; j < STREAMS; ++j) sum += c[i * across + j * along][l];
        for (int j = 0; j < STREAMS; ++j) c[i * across + j * along][l] /= sum;
      }
  }
}

static void balance_backward(float d[kCells][kLanes], int64_t iterations, float eps,
                             float history[][kCells][kLanes]) {
  for (int64_t step = 2 * iterations - 1; step >= 1; --step) {
    const int along = step % 2 ? STREAMS : 1, across = step % 2 ? 1 : STREAMS;
    for (int i = 0; i < STREAMS; ++i)
      for (int l = 0; l < kLanes; ++l) {
        float sum = eps, dot = 0;
        for (int j = 0; j < STREAMS; ++j) sum += history[step][i * across + j * along][l];
        for (int j = 0; j < STREAMS; ++j)
          dot += d[i * across + j * along][l] * history[step][i * across + j * along][l];
        for (int j = 0; j < STREAMS; ++j)
          d[i * across + j * along][l] = (d[i * across + j * along][l] - dot / sum) / sum;
      }
  }
  for (int i = 0; i < STREAMS; ++i)
    for (int l = 0; l < kLanes; ++l) {
      float dot = 0;
      for (int j = 0; j < STREAMS; ++j)
        dot += d[i * STREAMS + j][l] * history[0][i * STREAMS + j][l];
      for (int j = 0; j < STREAMS; ++j)
        d[i * STREAMS + j][l] = history[0][i * STREAMS + j][l] * (d[i * STREAMS + j][l] - dot);
    }
}

static inline float sigmoid(float x) { return 1 / (1 + expf(-x)); }

// m [n, kMix] projections, inverse [n]; scale [3], base [kMix]. Writes pre, post, comb.
void coefficients_forward(int64_t n, const float* m, const float* inverse, const float* scale,
                          const float* base, int64_t iterations, float eps, float* pre, float* post,
                          float* comb) {
  float(*history)[kCells][kLanes] = malloc(2 * iterations * sizeof *history);
  for (int64_t first = 0; first < n; first += kLanes) {
    const int64_t count = n - first < kLanes ? n - first : kLanes;
    float c[kCells][kLanes] = {0};
    for (int64_t l = 0; l < count; ++l) {
      const int64_t t = first + l;
      for (int i = 0; i < kCells; ++i)
        c[i][l] = m[t * kMix + 2 * STREAMS + i] * inverse[t] * scale[2] + base[2 * STREAMS + i];
      for (int s = 0; s < STREAMS; ++s) {
        pre[t * STREAMS + s] = sigmoid(m[t * kMix + s] * inverse[t] * scale[0] + base[s]) + eps;
        post[t * STREAMS + s] =
            2 * sigmoid(m[t * kMix + STREAMS + s] * inverse[t] * scale[1] + base[STREAMS + s]);
      }
    }
    balance(c, iterations, eps, history);
    for (int64_t l = 0; l < count; ++l)
      for (int i = 0; i < kCells; ++i) comb[(first + l) * kCells + i] = c[i][l];
  }
  free(history);
}

// d_m is the gradient of the projections before `inverse`, d_inverse [n] that of the inverse norm;
// d_scale [3] and d_base [kMix] are sums.
void coefficients_backward(int64_t n, const float* m, const float* inverse, const float* scale,
                           const float* base, int64_t iterations, float eps, const float* pre,
                           const float* post, const float* d_pre, const float* d_post,
                           const float* d_comb, float* d_m, float* d_inverse, float* d_scale,
                           float* d_base) {
  float(*history)[kCells][kLanes] = malloc(2 * iterations * sizeof *history);
  memset(d_scale, 0, 3 * sizeof(float));
  memset(d_base, 0, kMix * sizeof(float));
  for (int64_t first = 0; first < n; first += kLanes) {
    const int64_t count = n - first < kLanes ? n - first : kLanes;
    float c[kCells][kLanes] = {0}, d[kCells][kLanes] = {0};
    for (int64_t l = 0; l < count; ++l)
      for (int i = 0; i < kCells; ++i) {
        const int64_t t = first + l;
        c[i][l] = m[t * kMix + 2 * STREAMS + i] * inverse[t] * scale[2] + base[2 * STREAMS + i];
        d[i][l] = d_comb[t * kCells + i];
      }
    balance(c, iterations, eps, history);
    balance_backward(d, iterations, eps, history);
    for (int64_t l = 0; l < count; ++l) {
      const int64_t t = first + l;
      float d_logit[kMix], d_r = 0;
      for (int s = 0; s < STREAMS; ++s) {
        const float a = pre[t * STREAMS + s] - eps, b = post[t * STREAMS + s] / 2;
        d_logit[s] = d_pre[t * STREAMS + s] * a * (1 - a);
        d_logit[STREAMS + s] = d_post[t * STREAMS + s] * 2 * b * (1 - b);
      }
      for (int i = 0; i < kCells; ++i) d_logit[2 * STREAMS + i] = d[i][l];
      for (int k = 0; k < kMix; ++k) {
        const int part = k < STREAMS ? 0 : k < 2 * STREAMS ? 1 : 2;
        const float raw = m[t * kMix + k];
        d_base[k] += d_logit[k];
        d_scale[part] += d_logit[k] * raw * inverse[t];
        d_m[t * kMix + k] = d_logit[k] * scale[part] * inverse[t];
        d_r += d_logit[k] * scale[part] * raw;
      }
      d_inverse[t] = d_r;
    }
  }
  free(history);
}

// ---- Rows ---------------------------------------------------------------------------------------

void rms_norm_forward(int64_t n, int64_t width, const float* x, const float* weight, float eps,
                      float* out, float* inverse) {
  for (int64_t i = 0; i < n; ++i) {
    float square = 0;
    for (int64_t c = 0; c < width; ++c) square += x[i * width + c] * x[i * width + c];
    const float r = 1 / sqrtf(square / (float)width + eps);
    inverse[i] = r;
    for (int64_t c = 0; c < width; ++c) out[i * width + c] = x[i * width + c] * r * weight[c];
  }
}

// d_weight has to be zero on entry and is added to.
void rms_norm_backward(int64_t n, int64_t width, const float* x, const float* weight,
                       const float* inverse, const float* d_out, float* d_x, float* d_weight) {
  for (int64_t i = 0; i < n; ++i) {
    const float r = inverse[i];
    float dot = 0;
    for (int64_t c = 0; c < width; ++c) {
      dot += d_out[i * width + c] * weight[c] * x[i * width + c];
      d_weight[c] += d_out[i * width + c] * x[i * width + c] * r;
    }
    const float back = dot * r * r / (float)width;
    for (int64_t c = 0; c < width; ++c)
      d_x[i * width + c] = (d_out[i * width + c] * weight[c] - back * x[i * width + c]) * r;
  }
}

// Rotates the last 2 * half channels of x [n, heads, width] by the angle of position i % t; `sign`
// -1 turns back.
void rotate(int64_t n, int64_t t, int64_t heads, int64_t width, int64_t half, const float* cosine,
            const float* sine, float sign, const float* x, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    const float* co = cosine + i % t * half;
    const float* si = sine + i % t * half;
    for (int64_t h = 0; h < heads; ++h) {
      const float* in = x + (i * heads + h) * width;
      float* to = out + (i * heads + h) * width;
      memcpy(to, in, (width - 2 * half) * sizeof(float));
      in += width - 2 * half, to += width - 2 * half;
      for (int64_t k = 0; k < half; ++k) {
        const float a = in[2 * k], b = in[2 * k + 1], s = sign * si[k];
        to[2 * k] = a * co[k] - b * s;
        to[2 * k + 1] = a * s + b * co[k];
      }
    }
  }
}

// out [n, width] = share[n] * silu(min(gate, limit)) * clamp(up); share may be null.
void swiglu_forward(int64_t n, int64_t width, const float* gate, const float* up,
                    const float* share, float limit, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    const float f = share ? share[i] : 1;
    for (int64_t c = i * width; c < (i + 1) * width; ++c) {
      const float g = gate[c] < limit ? gate[c] : limit;
      float u = up[c] < limit ? up[c] : limit;
      u = u > -limit ? u : -limit;
      out[c] = f * g * sigmoid(g) * u;
    }
  }
}

void swiglu_backward(int64_t n, int64_t width, const float* gate, const float* up,
                     const float* share, float limit, const float* d_out, float* d_gate,
                     float* d_up, float* d_share) {
  for (int64_t i = 0; i < n; ++i) {
    const float f = share ? share[i] : 1;
    float sum = 0;
    for (int64_t c = i * width; c < (i + 1) * width; ++c) {
      const float g = gate[c] < limit ? gate[c] : limit;
      float u = up[c] < limit ? up[c] : limit;
      u = u > -limit ? u : -limit;
      const float s = sigmoid(g);
      sum += d_out[c] * g * s * u;
      d_gate[c] = gate[c] < limit ? f * d_out[c] * u * s * (1 + g * (1 - s)) : 0;
      d_up[c] = up[c] < limit && up[c] > -limit ? f * d_out[c] * g * s : 0;
    }
    if (d_share) d_share[i] = sum;
  }
}

// out[i] = x[ids[i]] for n rows.
void gather_rows(int64_t n, int64_t width, const float* x, const int64_t* ids, float* out) {
  for (int64_t i = 0; i < n; ++i)
    memcpy(out + i * width, x + ids[i] * width, width * sizeof(float));
}

// out[ids[i]] += x[i] for n rows.
void scatter_rows(int64_t n, int64_t width, const float* x, const int64_t* ids, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    float* to = out + ids[i] * width;
    for (int64_t c = 0; c < width; ++c) to[c] += x[i * width + c];
  }
}
