// The contract of every kernel that exists once per instruction set.
//
// Activations and accumulation are f32. Errors against exact arithmetic on the stored values: linear and
// attention scores at most (terms + 2) * 2^-24 * sum |w x|; exp, silu and softmax 1e-6 relative; norms 1e-6
// relative to the largest value. Quantised weights and x in whole numbers (pack_words, pack_bytes): x is rounded under
// a scale per run of 32 columns, to half a 32767th (16 bits) or half a 127th (8 bits) of the run's largest magnitude;
// products and sums of a span are exact, and what follows has an error of (runs + 8) * 2^-22 * sum (|scale code| +
// |minimum|) |x|, codes without their offset. NaN and infinity in x give NaN
// in every row; runs of values below 1e-30 count as zero. Decode over q8_0 rows: a query is rounded to 16 bits under
// one scale, half a 32767th of its largest magnitude; so are the weights of 32 positions times the scales of their
// values (which are not negative), of the largest such product. Where BF16 units multiply (pack_pairs), x is rounded to
// bf16, to nearest even, as are the values of quantised weights once they are computed in f32, and the bound of linear
// holds for what that gives (arm64's units round up to twice as much, half as often); so are the factors of attention
// of prompts in bf16 (PrefillArgs::activations): each weight, relative to the largest score so far, by at most a 256th
// of itself. In int16 a query times `factor`, and a key, are rounded to half a 46000th of their length or half a
// 32760th of their largest magnitude, whichever is more, and values to half an 8000th of their position's largest
// magnitude; weights times these magnitudes, over 64 positions, each by at most a 65000th of their sum. No pointer
// needs more than its element's alignment; 64 bytes is fastest.
#pragma once
#include <cstddef>

#include "formats/format.h"

namespace helm {

// How precise numbers are at least that meet others of many tokens: activations that matrices multiply (linear.h), and
// the factors of attention of prompts, which have no 8 bits.
enum class Activations { f32, bf16, int16, int8 };
enum class NormKind { rms, layer };
// swiglu_oai: gate * sigmoid(1.702 gate) * (up + 1).
enum class Activation { silu, relu, gelu, gelu_tanh, relu2, swiglu_oai };

struct MixerKernels;  // see mixers.h

// y[tokens][stride] = (or +=) x W^T for panels [first_panel, last_panel) of packed weights.
struct LinearArgs {
  const void* weights;  // [ceil(rows / 16)][columns][16], quantised: see panels.h
  Format format;
  size_t rows, columns;
  const void* x;  // what one of the pack functions leaves; f32 of one token is simply [columns]
  float* y;       // row r of token t is y[t * stride + r]
  size_t stride, tokens;
  bool accumulate;
  size_t first_panel, last_panel;
  float* scratch;  // kLinearScratch floats, 64-byte aligned
  // Whether `linear` rounds the values of quantised weights to bf16; x is rounded already.
  bool rounded = false;
};
constexpr size_t kTileFloats = 16384;  // room for tiles of weights, which L1 or L2 holds while tokens pass
constexpr size_t kSumFloats = 16896;   // room for sums that wait beside tiles
constexpr size_t kLinearScratch = kTileFloats + kSumFloats;

static constexpr size_t runs_of(size_t columns) { return (columns + kRun - 1) / kRun; }

// Activations for quantised weights, in 32-bit units: per token and run of 32 columns sixteen pairs of 16-bit numbers,
// the run's scale (f32), scale times sum (f32), and the sums of either half.
constexpr size_t kRunWords = 20;
static constexpr size_t words_size(size_t columns) { return runs_of(columns) * kRunWords; }
// The same in 8 bits: eight times four numbers, scale, scale times sum, and the sums of what meets the first and the
// last two of four, as 16-bit numbers: of the first half, of the second and of both; these not where codes are signed.
constexpr size_t kRunBytes = 13, kSignedRunBytes = 10;

// Parts [begin, end) of x[tokens][columns], whose rows are `stride` apart, into blocks of tokens.
struct PackArgs {
  const float* x;
  size_t stride, tokens, columns, begin, end;
  void* packed;
};

// The keys, or values, of one KV head: of its first sequence, and how many bytes the next is away.
struct HeadCache {
  char* data = nullptr;
  size_t sequence = 0;
};

// Cached positions [position, position + count): of every KV head `count` rows per sequence, from row `first` on. A row
// is head_dim values; in q8_0, where head_dim is a multiple of 32, all codes (8 bits), then the scales (f16) of 32
// each.
struct KvSpan {
  const HeadCache *keys, *values;  // by KV head
  size_t position, count;
  size_t first = 0;
};

// In any order; together they may leave positions out.
struct KvSpans {
  const KvSpan* first;
  size_t count;

  const KvSpan* begin() const { return first; }
  const KvSpan* end() const { return first + count; }
};

// What becomes of products of queries and keys before the softmax, and what takes part in it beside them: `factor`
// multiplies products, `softcap` (0: none) makes softcap * tanh(score / softcap) of scores, with an error of at most
// softcap * 2^-22; a token sees `window` positions, itself the last of them (0: all).
struct Scoring {
  float factor = 0;
  float softcap = 0;
  size_t window = 0;
};

// How many positions of a span are below `limit`.
static inline size_t seen(const KvSpan& span, size_t limit) {
  const size_t below = limit > span.position ? limit - span.position : 0;
  return below < span.count ? below : span.count;
}

// Attention of `group` query heads of one sequence over one KV head's positions [begin, end), counted over those of
// the spans that are below `limit`, in their order.
struct DecodeArgs {
  Format format;
  KvSpans spans;
  size_t limit, sequence, kv_head, begin, end, head_dim, group;
  const float* q;   // [group][head_dim]
  bool resume;      // out, max and sum hold what came before; else they are only written
  float* out;       // [group][head_dim], weights relative to exp(max), not divided by sum
  float* max;       // [group]
  float* sum;       // [group]
  float* scratch;   // decode_scratch(head_dim, group) floats, 64-byte aligned
  bool goes_on;     // to all positions of the next KV head
  Scoring scoring;  // positions before the window are not among those of the spans
};

// Causal attention of tokens [first, last) of one sequence, for one KV head and its query heads: token t sees what the
// spans hold of positions up to past + t, from where its window begins.
struct PrefillArgs {
  Format format;
  KvSpans spans;
  size_t past, sequence, kv_head, first, last, head_dim, group;
  const float* q;  // token t, head g: q[t * stride + g * head_dim]; t counts from 0, not from first
  float* out;      // same shape
  size_t stride;
  bool resume, finish;  // whether out, max and sum hold what came before, and whether out is divided at the end
  float *max, *sum;     // token t, head g: max[t * heads + g]; unused where neither is resumed nor left
  size_t heads;
  // What queries times `factor`, K, V and the weights between them are rounded to; these are exp to 3e-6, of f32 to
  // 1e-6.
  Activations activations;
  float* scratch;  // prefill_scratch(head_dim, rows) floats, rows = (last - first) * group, 64-byte aligned
  Scoring scoring;
  const float* sinks;  // [group]: a logit of each head that has no value, where nothing came before; or null
};

// Divided attention: K is stored transposed, so that scores, softmax and the weighted sum can be three operations.
// Every result is a chain of FMAs in ascending order: it does not depend on how work is cut.

// scores[g * stride + p] = q[g] . K[p] for positions p in [begin, end), not scaled; up to a register more is written.
struct ScoresArgs {
  Format format;
  const void* keys;  // [head_dim][capacity]
  size_t capacity, head_dim, group, begin, end;
  const float* q;  // [group][head_dim]
  float* scores;
  size_t stride;  // a multiple of kPanel, at least capacity
};

// out[g][d] = sum of weights[g * stride + p] V[p][d] over p < end, for columns d in [first, last).
struct WeightedArgs {
  Format format;
  const void* values;  // [capacity][head_dim]
  size_t end, head_dim, group, first, last;
  const float* weights;
  size_t stride;
  float* out;  // [group][head_dim]
};

// Tokens [first, last) of a prompt on top of `past` positions, for one key/value head and its query heads. Token t of
// head g: q and out at t * row + g * head_dim, scores at t * token_stride + g * stride; t counts from 0.
struct PromptArgs {
  Format format;
  const void* cache;  // keys [head_dim][capacity] or values [capacity][head_dim]
  size_t capacity, past, first, last, head_dim, group;
  const float* q;  // scores only
  float* scores;   // weights for the weighted sum: zero where a token may not look
  size_t stride, token_stride;
  float* out;  // weighted sum only
  size_t row;
  float* scratch;  // prefill_scratch(head_dim, rows) floats, rows = (last - first) * group, 64-byte aligned
};

// `tokens` rows of a cache (see cache_rows.h) of one head, `stride` bytes apart, to plain values in `format`.
struct TurnArgs {
  const void* rows;
  size_t stride, tokens, width;
  bool groups;  // rows are in 4-bit groups; else in `format`
  Format format;
  void* target;          // transposed: [width] lines of tokens, else [tokens] rows; nothing beyond is written
  size_t target_stride;  // bytes
  bool transposed;
};

constexpr size_t kDecodeTile = 256;       // positions whose scores are kept between reading K and reading V
constexpr size_t kDecodeRows = 16;        // positions widened to f32 at once
constexpr size_t kPrefillTile = 64;       // positions of K and V kept as f32 (64 KiB with head_dim 128)
constexpr size_t kPrefillRows = 384;      // wanted rows (tokens x query heads) per piece of prefill attention
constexpr size_t kMostRowsTogether = 32;  // of those, in one panel of queries: of any instruction set

static inline size_t decode_scratch(size_t head_dim, size_t group) {
  const size_t width = round_up(head_dim, 4 * kRun), coded = 4 * width * round_up(group, 4) + (3 + kPanel) * group;
  return width * (kDecodeRows + 2 * group + 8) + group * kDecodeTile + coded;
}

static inline size_t prefill_scratch(size_t head_dim, size_t rows) {
  const size_t width = round_up(head_dim, kPanel);
  const size_t scales = kMostRowsTogether + 2 * kPrefillTile;
  return (2 * width + kMostRowsTogether) * kPrefillTile + round_up(rows, kMostRowsTogether) * (2 * width + 3) + scales;
}

// A loop that multiplies and adds in registers alone: `products` of numbers a round. Null where there is no such unit.
struct Peak {
  size_t products;
  void (*run)(size_t rounds);
};

struct Kernels {
  const char* name;
  size_t stream_tokens;       // up to here reading plain weights is the cost, and activations are not rounded
  size_t pair_stream_tokens;  // where activations are to be bf16: the same of weights in bf16, and of four bits
  size_t code_stream_tokens;  // up to here quantised weights are multiplied as they stream, in 16 bits
  size_t stream_block;        // tokens per block while streaming
  size_t product_block;       // tokens per block of the blocked product
  size_t part_panels = 2;     // the fewest panels that are worth a call of products of many tokens

  bool word_product;  // whether many tokens meet quantised weights faster in 16 bits than in f32
  int byte_most;      // the largest code that linear_bytes multiplies

  void (*linear)(const LinearArgs&);        // of f32 activations
  void (*linear_words)(const LinearArgs&);  // of 16-bit ones: quantised formats
  // Runs of 32 columns, each block [runs][kRunWords][width]; `bytes`: rounded as pack_bytes does.
  void (*pack_words)(const PackArgs&, bool bytes);
  // Of 8-bit ones, more than code_stream_tokens: quantised formats of codes up to byte_most.
  void (*linear_bytes)(const LinearArgs&);
  // Runs of 32 columns, each block [runs][kRunBytes or kSignedRunBytes][width]; eight columns of a token side by side
  // where two tokens are multiplied at once.
  void (*pack_bytes)(const PackArgs&);
  // Of activations in bf16, more than pair_stream_tokens (of weights of five bits and more code_stream_tokens); weights
  // in bf16, or quantised ones, whose values are rounded to it on the way. Null without BF16 units.
  void (*linear_pairs)(const LinearArgs&);
  // Runs of 32 columns: pairs of columns, each block [(columns + 1) / 2][width], or, for tiles, lines of a token's run,
  // each block [runs][width][32], all of one even width, the last filled up with zeros.
  void (*pack_pairs)(const PackArgs&);
  // Columns [begin, end) of x[tokens][stride] into blocks [columns][width].
  void (*pack_x)(const float* x, size_t stride, size_t tokens, size_t columns, size_t block, size_t begin, size_t end,
                 float* packed);
  void (*decode)(const DecodeArgs&);
  void (*prefill)(const PrefillArgs&);
  void (*prefill_pairs)(const PrefillArgs&);  // of bf16. Null without BF16 units
  void (*prefill_words)(const PrefillArgs&);  // of int16. Null where products of words are no faster than those of f32
  void (*scores)(const ScoresArgs&);
  void (*scores_prompt)(const PromptArgs&);  // causal: later positions may be left alone
  // x[n] = exp(factor x[n]) / their sum.
  void (*softmax)(float* x, size_t n, float factor);
  void (*weighted)(const WeightedArgs&);
  void (*weighted_prompt)(const PromptArgs&);
  // out[n] = norm(x[n]) * weight[n] + bias[n]; bias may be null. out may be x.
  void (*norm)(NormKind kind, const float* x, const float* weight, const float* bias, float eps, size_t n, float* out);
  // Hugging Face's rotate_half on x[2 * half] with cos[half], sin[half].
  void (*rope)(float* x, const float* cos, const float* sin, size_t half);
  // up[n] = activation(gate[n]) * up[n], or activation(up[n]) without a gate.
  void (*activate)(Activation kind, const float* gate, float* up, size_t n);
  void (*add)(float* x, const float* addend, size_t n);
  void (*scale)(float* x, float factor, size_t n);
  void (*widen)(Format format, const void* source, size_t n, float* target);
  void (*narrow)(Format format, const float* source, size_t n, void* target);
  // `panels` consecutive panels of q4 to packed panels of `format`.
  void (*expand)(Format format, const void* source, size_t columns, size_t panels, void* target);
  // f32 to a row in 4-bit groups: rounded as compress.h says, in one round; NaN counts as the lowest value.
  void (*compress_row)(const float* values, size_t width, void* row);
  // f32 to a row of a cache that attention reads.
  void (*write_row)(Format format, const float* values, size_t n, void* row);
  void (*turn_rows)(const TurnArgs&);
  size_t (*argmax)(const float* x, size_t n);                  // the lowest index of the largest value
  unsigned long long (*read)(const void* data, size_t bytes);  // a plain read loop; bytes % 64 == 0
  Peak peak_floats, peak_words, peak_bytes, peak_pairs;        // of f32, of numbers of 16 and 8 bits, and of bf16
  const MixerKernels& (*mixers)();                             // of routers and recurrent mixers
};

// Tokens cut into blocks of at most `limit`, even to one token, the longer ones first. A division takes as long as the
// products of a few columns, so that there is one for all blocks.
struct Block {
  size_t begin, end;
};

struct Blocks {
  size_t count, shorter, longer;  // blocks, tokens of a shorter one, and how many have one more
};

static inline Blocks blocks_of(size_t tokens, size_t limit) {
  const size_t count = (tokens + limit - 1) / limit;
  return {count, tokens / count, tokens % count};
}

static inline Block block_at(const Blocks& blocks, size_t index) {
  const size_t begin = index * blocks.shorter + (index < blocks.longer ? index : blocks.longer);
  return {begin, begin + blocks.shorter + (index < blocks.longer)};
}

static inline size_t block_limit(const Kernels& kernels, size_t tokens) {
  return tokens <= kernels.stream_tokens ? kernels.stream_block : kernels.product_block;
}

}  // namespace helm
