// ke_vector.h: loads, stores, loops and horizontal reductions over ke::vf for generated CPU kernels.
//
// A loop body is a generic lambda `f(L, i, u)`. L is Full for whole vectors and Tail for the last, partial one: the
// same text serves both. u is a compile-time constant below the unroll factor and selects an accumulator.
#pragma once

#include <ke_math.h>

#include <cstdlib>
#include <type_traits>
#include <utility>
#ifdef __linux__
#include <sys/mman.h>
#endif

namespace ke {

typedef uint8_t vb __attribute__((vector_size(KE_WIDTH)));
typedef int8_t vsb __attribute__((vector_size(KE_WIDTH)));

constexpr int kLogW = KE_WIDTH == 16 ? 4 : KE_WIDTH == 8 ? 3 : 2;

KE_INLINE vi lane_index() {
  vi r;
  for (int l = 0; l < W; ++l) r[l] = l;
  return r;
}
KE_INLINE vi splat_mask(bool b) { return vi{} - static_cast<int32_t>(b); }
template <class V> KE_INLINE V to_value(typename mask<V>::type m) { return select(m, splat<V>(1.0f), splat<V>(0.0f)); }

struct Full {
  static constexpr bool full = true;
  KE_INLINE int lanes() const { return W; }
  KE_INLINE vf load(const float* p) const { return *reinterpret_cast<const vf_unaligned*>(p); }
  KE_INLINE vf load(const float* p, int64_t stride) const {
    vf r;
    for (int l = 0; l < W; ++l) r[l] = p[l * stride];
    return r;
  }
  KE_INLINE vi load(const uint8_t* p) const {
    vb b;
    std::memcpy(&b, p, W);
    return __builtin_convertvector(b, vi) != 0;
  }
  KE_INLINE vi load(const uint8_t* p, int64_t stride) const {
    vi r;
    for (int l = 0; l < W; ++l) r[l] = -static_cast<int32_t>(p[l * stride] != 0);
    return r;
  }
  KE_INLINE void store(float* p, vf v) const { *reinterpret_cast<vf_unaligned*>(p) = v; }
  KE_INLINE void store(uint8_t* p, vi m) const {
    vb b = __builtin_convertvector(m & 1, vb);
    std::memcpy(p, &b, W);
  }
  template <class P, class V> KE_INLINE void store(P* p, V v, int64_t stride) const {
    for (int l = 0; l < W; ++l) p[l * stride] = std::is_same<P, uint8_t>::value ? P(v[l] != 0) : P(v[l]);
  }
  // Bypasses the caches; p must be aligned to the vector.
  KE_INLINE void stream(float* p, vf v) const {
#if defined(__AVX512F__) && KE_WIDTH == 16
    _mm512_stream_ps(p, reinterpret_cast<__m512>(v));
#elif defined(__AVX__) && KE_WIDTH == 8
    _mm256_stream_ps(p, reinterpret_cast<__m256>(v));
#elif defined(__SSE__) && KE_WIDTH == 4
    _mm_stream_ps(p, reinterpret_cast<__m128>(v));
#else
    store(p, v);
#endif
  }
  // In a reduction: the value itself. A Tail puts the neutral element into the lanes beyond the end.
  KE_INLINE vf keep(vf v, float) const { return v; }
};

struct Tail {
  static constexpr bool full = false;
  int n;
  KE_INLINE int lanes() const { return n; }
  KE_INLINE vf load(const float* p) const {
    vf r{};
    std::memcpy(&r, p, static_cast<size_t>(n) * 4);
    return r;
  }
  KE_INLINE vf load(const float* p, int64_t stride) const {
    vf r{};
    for (int l = 0; l < n; ++l) r[l] = p[l * stride];
    return r;
  }
  KE_INLINE vi load(const uint8_t* p) const {
    vi r{};
    for (int l = 0; l < n; ++l) r[l] = -static_cast<int32_t>(p[l] != 0);
    return r;
  }
  KE_INLINE vi load(const uint8_t* p, int64_t stride) const {
    vi r{};
    for (int l = 0; l < n; ++l) r[l] = -static_cast<int32_t>(p[l * stride] != 0);
    return r;
  }
  KE_INLINE void store(float* p, vf v) const { std::memcpy(p, &v, static_cast<size_t>(n) * 4); }
  KE_INLINE void store(uint8_t* p, vi m) const {
    for (int l = 0; l < n; ++l) p[l] = static_cast<uint8_t>(m[l] & 1);
  }
  template <class P, class V> KE_INLINE void store(P* p, V v, int64_t stride) const {
    for (int l = 0; l < n; ++l) p[l * stride] = std::is_same<P, uint8_t>::value ? P(v[l] != 0) : P(v[l]);
  }
  KE_INLINE void stream(float* p, vf v) const { store(p, v); }
  KE_INLINE vf keep(vf v, float neutral) const { return select(lane_index() < n, v, splat<vf>(neutral)); }
};

// One element: the scalar reading of a body, for gathers and peeled elements.
struct One {
  static constexpr bool full = false;
  KE_INLINE float load(const float* p) const { return *p; }
  KE_INLINE float load(const float* p, int64_t) const { return *p; }
  KE_INLINE bool load(const uint8_t* p) const { return *p != 0; }
  KE_INLINE bool load(const uint8_t* p, int64_t) const { return *p != 0; }
};

template <class F, int... U> KE_INLINE void unroll_(F&& f, std::integer_sequence<int, U...>) {
  (f(std::integral_constant<int, U>{}), ...);
}
template <int U, class F> KE_INLINE void unroll(F&& f) { unroll_(f, std::make_integer_sequence<int, U>{}); }

// f(L, i, u) over [begin, end) in vectors, U at a time.
template <int U, class F> KE_INLINE void each(int64_t begin, int64_t end, F&& f) {
  int64_t i = begin;
  for (; i + U * W <= end; i += U * W) unroll<U>([&](auto u) KE_LAMBDA { f(Full{}, i + u * W, u); });
  if (U > 1)
    for (; i + W <= end; i += W) f(Full{}, i, std::integral_constant<int, 0>{});
  if (i < end) f(Tail{static_cast<int>(end - i)}, i, std::integral_constant<int, 0>{});
}

// As each, but whole vectors start where p + i is aligned, so that f may stream to it.
template <int U, class F> KE_INLINE void each_aligned(const float* p, int64_t begin, int64_t end, F&& f) {
  constexpr uintptr_t bytes = W * 4;
  int64_t head = static_cast<int64_t>((bytes - reinterpret_cast<uintptr_t>(p + begin) % bytes) % bytes / 4);
  head = head < end - begin ? head : end - begin;
  if (head > 0) f(Tail{static_cast<int>(head)}, begin, std::integral_constant<int, 0>{});
  each<U>(begin + head, end, f);
}

// f(L, count, i): groups of up to U vectors side by side; count is a compile-time constant.
template <int U, class F> KE_INLINE void groups(int64_t begin, int64_t end, F&& f) {
  int64_t i = begin;
  for (; i + U * W <= end; i += U * W) f(Full{}, std::integral_constant<int, U>{}, i);
  if (U > 1)
    for (; i + W <= end; i += W) f(Full{}, std::integral_constant<int, 1>{}, i);
  if (i < end) f(Tail{static_cast<int>(end - i)}, std::integral_constant<int, 1>{}, i);
}

// Horizontal reductions of U accumulators; max and min propagate NaN. In registers: through memory, every halving
// would wait for the store before it.
KE_INLINE vf exchange(vf v, int distance) {
#ifdef __clang__
  vf r;
  for (int l = 0; l < W; ++l) r[l] = v[l ^ distance];
  return r;
#else
  return __builtin_shuffle(v, lane_index() ^ distance);
#endif
}
template <class Op> KE_INLINE float fold(vf v, Op op) {
  unroll<kLogW>([&](auto step) KE_LAMBDA { v = op(v, exchange(v, (W / 2) >> step)); });
  return v[0];
}
struct Sum {
  static constexpr float neutral = 0.0f;
  template <class V> KE_INLINE V operator()(V a, V b) const { return a + b; }
};
struct Prod {
  static constexpr float neutral = 1.0f;
  template <class V> KE_INLINE V operator()(V a, V b) const { return a * b; }
};
struct Max {
  static constexpr float neutral = -kInf;
  template <class V> KE_INLINE V operator()(V a, V b) const { return max(a, b); }
};
struct Min {
  static constexpr float neutral = kInf;
  template <class V> KE_INLINE V operator()(V a, V b) const { return min(a, b); }
};
template <class Op, int U> struct Acc {
  vf v[U];
  KE_INLINE Acc() {
    for (int u = 0; u < U; ++u) v[u] = splat<vf>(Op::neutral);
  }
  template <class L> KE_INLINE void add(L lanes, int u, vf x) { v[u] = Op{}(v[u], lanes.keep(x, Op::neutral)); }
  KE_INLINE vf lanes() const {
    vf r = v[0];
    for (int u = 1; u < U; ++u) r = Op{}(r, v[u]);
    return r;
  }
  KE_INLINE float total() const { return fold(lanes(), Op{}); }
};

// Mean and sum of squared deviations of a union, from those of its parts (Chan, Golub and LeVeque, 1983).
struct Moments {
  float count = 0.0f, mean = 0.0f, m2 = 0.0f;
  KE_INLINE void merge(int64_t n, float sum, float squares) {
    const float size = static_cast<float>(n), part = sum / size, all = count + size, delta = part - mean;
    m2 += max(squares - sum * part, 0.0f) + delta * delta * (count * size / all);
    mean += delta * (size / all);
    count = all;
  }
};

// Running maximum and sum of exp(x - maximum), lane by lane: one exponential pair per element, one pass.
template <int U> struct OnlineSoftmax {
  vf m[U], s[U];
  KE_INLINE OnlineSoftmax() {
    for (int u = 0; u < U; ++u) m[u] = splat<vf>(-kInf), s[u] = vf{};
  }
  template <class L> KE_INLINE void add(L lanes, int u, vf x) {
    vf y = lanes.keep(x, -kInf);
    vf top = max(m[u], y);
    vf d = -abs(vf(y - m[u]));
    vf e = exp(select(m[u] == y, vf{}, d));
    // Where both are -inf their difference is NaN and nothing is to be added.
    s[u] = select(y > m[u], vf(s[u] * e + 1.0f), vf(s[u] + select(y == -kInf, vf{}, e)));
    s[u] = select(y != y, y, s[u]);
    m[u] = top;
  }
  KE_INLINE void total(float& top, float& sum) const {
    Acc<Max, U> a;
    for (int u = 0; u < U; ++u) a.v[u] = m[u];
    top = a.total();
    vf t = vf{};
    for (int u = 0; u < U; ++u) t += select(m[u] == -kInf, vf{}, vf(s[u] * exp(vf(m[u] - splat<vf>(top)))));
    sum = fold(t, Sum{});
  }
};

// Large fresh outputs cost a page fault per 4 KiB; huge pages make that one per 2 MiB where the system allows it.
KE_INLINE void advise_huge(const void* p, int64_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  if (bytes < (8 << 20)) return;
  const uintptr_t page = 4096, a = (reinterpret_cast<uintptr_t>(p) + page - 1) & ~(page - 1);
  const uintptr_t b = (reinterpret_cast<uintptr_t>(p) + static_cast<uintptr_t>(bytes)) & ~(page - 1);
  if (b > a) madvise(reinterpret_cast<void*>(a), b - a, MADV_HUGEPAGE);
#else
  (void)p, (void)bytes;
#endif
}

// A buffer per thread and slot that grows when needed and stays for the next call.
template <int Slot> inline float* scratch(int64_t floats) {
  struct Buffer {
    float* data = nullptr;
    int64_t size = 0;
    ~Buffer() { std::free(data); }
  };
  static thread_local Buffer buffer;
  if (buffer.size < floats) {
    std::free(buffer.data);
    buffer.size = (floats + 1023) / 1024 * 1024;
    buffer.data = static_cast<float*>(std::aligned_alloc(4096, static_cast<size_t>(buffer.size) * 4));
  }
  return buffer.data;
}

KE_INLINE void fence() {
#ifdef __SSE__
  _mm_sfence();  // non-temporal stores become visible before the kernel returns
#endif
}

// Transposes a W x W tile: rows at `src` (stride `ld`, contiguous inside) to rows at `dst` (stride `ldd`).
KE_INLINE void transpose_tile(const float* src, int64_t ld, float* dst, int64_t ldd) {
  vf r[W];
  for (int i = 0; i < W; ++i) r[i] = *reinterpret_cast<const vf_unaligned*>(src + i * ld);
  vi lane = lane_index();
#pragma GCC unroll 4
  for (int h = W / 2; h > 0; h /= 2) {  // exchange off-diagonal blocks of size h
    vi low = select((lane & h) == 0, lane, vi(lane - h + W));
    vi high = select((lane & h) == 0, vi(lane + h), vi(lane + W));
#pragma GCC unroll 16
    for (int i = 0; i < W; ++i) {
      if (i & h) continue;
      vf a = r[i], b = r[i + h];
      r[i] = __builtin_shuffle(a, b, low);
      r[i + h] = __builtin_shuffle(a, b, high);
    }
  }
  for (int i = 0; i < W; ++i) *reinterpret_cast<vf_unaligned*>(dst + i * ldd) = r[i];
}

// Transposes `rows` x `cols` (any sizes) through W x W tiles; the rest goes element by element.
inline void transpose_block(const float* src, int64_t ld, float* dst, int64_t ldd, int64_t rows, int64_t cols) {
  const int64_t whole_rows = rows - rows % W, whole_cols = cols - cols % W;
  for (int64_t i = 0; i < whole_rows; i += W)
    for (int64_t j = 0; j < whole_cols; j += W) transpose_tile(src + i * ld + j, ld, dst + j * ldd + i, ldd);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = i < whole_rows ? whole_cols : 0; j < cols; ++j) dst[j * ldd + i] = src[i * ld + j];
}

// Panels of NR columns for `product_rows`: element (k, j) of panel p is B(k, p NR + j); columns beyond n are zero.
template <int NR> inline void pack_panels(const float* b, int64_t row, int64_t col, int64_t k, int64_t n, float* to) {
  const int64_t panels = (n + NR - 1) / NR;
#pragma omp parallel for schedule(static)
  for (int64_t p = 0; p < panels; ++p) {
    float* panel = to + p * k * NR;
    const int64_t columns = n - p * NR < NR ? n - p * NR : NR;
    if (columns < NR) std::memset(panel, 0, static_cast<size_t>(k) * NR * 4);
    const float* source = b + p * NR * col;
    if (row == 1) {  // B is stored by columns
      transpose_block(source, col, panel, NR, columns, k);
    } else {
      for (int64_t i = 0; i < k; ++i)
        for (int64_t j = 0; j < columns; ++j) panel[i * NR + j] = source[i * row + j * col];
    }
  }
}

// C[MR x NR] (+)= A[MR x k] panel: the accumulators stay in registers, A is broadcast, the panel is streamed.
template <int MR, int NV> KE_INLINE void product_tile(
    const float* a, int64_t lda, const float* panel, int64_t k, float* c, int64_t ldc, bool add) {
  vf acc[MR][NV];
  unroll<MR>([&](auto i) KE_LAMBDA {
    unroll<NV>([&](auto j) KE_LAMBDA {
      acc[i][j] = vf{};
    });
  });
  for (int64_t p = 0; p < k; ++p) {
    vf b[NV];
    unroll<NV>([&](auto j) KE_LAMBDA { b[j] = *reinterpret_cast<const vf_unaligned*>(panel + p * (NV * W) + j * W); });
    unroll<MR>([&](auto i) KE_LAMBDA {
      const vf x = splat<vf>(a[i * lda + p]);
      unroll<NV>([&](auto j) KE_LAMBDA { acc[i][j] += x * b[j]; });
    });
  }
  unroll<MR>([&](auto i) KE_LAMBDA {
    unroll<NV>([&](auto j) KE_LAMBDA {  // partial sums start from zero, which halves the rounding error
      vf_unaligned& to = *reinterpret_cast<vf_unaligned*>(c + i * ldc + j * W);
      to = add ? vf(to + acc[i][j]) : acc[i][j];
    });
  });
}

// `rows` rows of A times all panels, into C (row stride ldc, a multiple of NV W), KC of the inner dimension at a time.
template <int MR, int NV, int KC> inline void product_rows(
    const float* a, int64_t k, const float* panels, int64_t count, float* c, int64_t ldc, int64_t rows) {
  for (int64_t p = 0; p < k; p += KC) {
    const int64_t depth = k - p < KC ? k - p : KC;
    for (int64_t j = 0; j < count; ++j) {
      const float* panel = panels + j * k * (NV * W) + p * (NV * W);
      int64_t i = 0;
      for (; i + MR <= rows; i += MR)
        product_tile<MR, NV>(a + i * k + p, k, panel, depth, c + i * ldc + j * (NV * W), ldc, p > 0);
      for (; i < rows; ++i) product_tile<1, NV>(a + i * k + p, k, panel, depth, c + i * ldc + j * (NV * W), ldc, p > 0);
    }
  }
}

}  // namespace ke
