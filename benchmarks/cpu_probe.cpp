// Measures the CPU facts that kb/library quotes. One line a fact, median of repeated runs.
//   g++ -O3 -march=native -fopenmp benchmarks/cpu_probe.cpp -o cpu_probe && OMP_NUM_THREADS=2 ./cpu_probe
// The numbers move with the machine and with what else runs on it: rerun before you rely on one.
#include <omp.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

namespace {

volatile float sink;

double seconds(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median_seconds(const std::function<void()>& body, int repeats = 15) {
  body();
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) times.push_back(seconds(body));
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

float* floats(std::int64_t n) {
  auto* p = static_cast<float*>(std::aligned_alloc(64, static_cast<std::size_t>(n) * 4));
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < n; ++i) p[i] = 0.5f + static_cast<float>(i % 7) * 0.125f;
  return p;
}

void copy_plain(const float* __restrict a, float* __restrict b, std::int64_t n) {
#pragma omp parallel for simd schedule(static)
  for (std::int64_t i = 0; i < n; ++i) b[i] = a[i] * 1.0001f;
}

void copy_streaming(const float* __restrict a, float* __restrict b, std::int64_t n) {
#ifdef __AVX512F__
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < n; i += 16)
    _mm512_stream_ps(b + i, _mm512_mul_ps(_mm512_load_ps(a + i), _mm512_set1_ps(1.0001f)));
  _mm_sfence();
#elif defined(__AVX__)
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < n; i += 8)
    _mm256_stream_ps(b + i, _mm256_mul_ps(_mm256_load_ps(a + i), _mm256_set1_ps(1.0001f)));
  _mm_sfence();
#else
  copy_plain(a, b, n);  // no portable streaming store: both columns show ordinary ones
#endif
}

float sum_all_threads(const float* a, std::int64_t n) {
  float s = 0;
#pragma omp parallel for simd schedule(static) reduction(+ : s)
  for (std::int64_t i = 0; i < n; ++i) s += a[i];
  return s;
}

float sum_one(const float* a, std::int64_t n) {
  float s = 0;
  for (std::int64_t i = 0; i < n; ++i) s += a[i];
  return s;
}

float sum_simd(const float* a, std::int64_t n) {
  float s = 0;
#pragma omp simd reduction(+ : s)
  for (std::int64_t i = 0; i < n; ++i) s += a[i];
  return s;
}

float sum_blocked(const float* a, std::int64_t n) {
  constexpr int kLanes = 64;
  float lanes[kLanes] = {};
  for (std::int64_t i = 0; i < n; i += kLanes)
#pragma omp simd
    for (int j = 0; j < kLanes; ++j) lanes[j] += a[i + j];
  float s = 0;
  for (float lane : lanes) s += lane;
  return s;
}

void exp_libm(const float* a, float* b, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) b[i] = std::exp(a[i]);
}

constexpr float kRound = 12582912.0f;  // 1.5 * 2^23

inline __attribute__((always_inline)) float fast_exp(float v) {
  float x = v < -87.0f ? -87.0f : v;  // std::min and std::max return references, which block this loop
  x = x > 88.0f ? 88.0f : x;
  const float k = x * 1.44269504f + kRound - kRound;  // rounds to an integer without a call
  const float r = std::fma(k, -0.693359375f, x) + k * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = std::fma(p, r, 1.3981999507e-3f);
  p = std::fma(p, r, 8.3334519073e-3f);
  p = std::fma(p, r, 4.1665795894e-2f);
  p = std::fma(p, r, 1.6666665459e-1f);
  p = std::fma(p, r, 5.0000001201e-1f);
  p = std::fma(p * r, r, r + 1.0f);
  union { std::int32_t i; float f; } two_k;
  two_k.i = (static_cast<std::int32_t>(k) + 127) << 23;
  return p * two_k.f;
}

void exp_poly(const float* __restrict a, float* __restrict b, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) b[i] = fast_exp(a[i]);
}

void softmax_three_pass(const float* x, float* y, std::int64_t rows, std::int64_t n) {
#pragma omp parallel for schedule(static)
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* a = x + r * n;
    float* o = y + r * n;
    float peak = -INFINITY;
#pragma omp simd reduction(max : peak)
    for (std::int64_t i = 0; i < n; ++i) peak = a[i] > peak ? a[i] : peak;
    float total = 0;
#pragma omp simd reduction(+ : total)
    for (std::int64_t i = 0; i < n; ++i) {
      o[i] = fast_exp(a[i] - peak);
      total += o[i];
    }
    const float scale = 1.0f / total;
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) o[i] *= scale;
  }
}

void softmax_online(const float* x, float* y, std::int64_t rows, std::int64_t n) {
  constexpr int kLanes = 64;
#pragma omp parallel for schedule(static)
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* a = x + r * n;
    float* o = y + r * n;
    float peaks[kLanes];
    float totals[kLanes];
    for (int j = 0; j < kLanes; ++j) {
      peaks[j] = -1e30f;
      totals[j] = 0;
    }
    for (std::int64_t i = 0; i < n; i += kLanes)
#pragma omp simd
      for (int j = 0; j < kLanes; ++j) {
        const float next = a[i + j] > peaks[j] ? a[i + j] : peaks[j];
        totals[j] = totals[j] * fast_exp(peaks[j] - next) + fast_exp(a[i + j] - next);
        peaks[j] = next;
      }
    float peak = peaks[0];
    for (float p : peaks) peak = p > peak ? p : peak;
    float total = 0;
    for (int j = 0; j < kLanes; ++j) total += totals[j] * fast_exp(peaks[j] - peak);
    const float scale = 1.0f / total;
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) o[i] = fast_exp(a[i] - peak) * scale;
  }
}

void erf_libm(const float* a, float* b, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) b[i] = std::erf(a[i]);
}

void column_sum_strided(const float* a, float* out, std::int64_t rows, std::int64_t cols) {
  for (std::int64_t c = 0; c < cols; ++c) {
    float s = 0;
    for (std::int64_t r = 0; r < rows; ++r) s += a[r * cols + c];
    out[c] = s;
  }
}

void column_sum_rowwise(const float* a, float* out, std::int64_t rows, std::int64_t cols) {
  std::fill(out, out + cols, 0.0f);
  for (std::int64_t r = 0; r < rows; ++r)
#pragma omp simd
    for (std::int64_t c = 0; c < cols; ++c) out[c] += a[r * cols + c];
}

void transpose_naive(const float* a, float* b, std::int64_t n) {
  for (std::int64_t r = 0; r < n; ++r)
    for (std::int64_t c = 0; c < n; ++c) b[c * n + r] = a[r * n + c];
}

template <int kBlock>
void transpose_blocked(const float* a, float* b, std::int64_t n) {
  for (std::int64_t r0 = 0; r0 < n; r0 += kBlock)
    for (std::int64_t c0 = 0; c0 < n; c0 += kBlock)
      for (std::int64_t c = c0; c < c0 + kBlock; ++c)
        for (std::int64_t r = r0; r < r0 + kBlock; ++r) b[c * n + r] = a[r * n + c];
}

void fma_chains(float* out) {
  constexpr int kChains = 12;
  constexpr int kLanes = 16;
#pragma omp parallel
  {
    float acc[kChains][kLanes];
    for (auto& chain : acc)
      for (float& lane : chain) lane = 1.0f + 1e-3f * static_cast<float>(omp_get_thread_num());
    for (int i = 0; i < 2000000; ++i)
#pragma GCC unroll 12
      for (int c = 0; c < kChains; ++c)
#pragma omp simd simdlen(16)
        for (int l = 0; l < kLanes; ++l) acc[c][l] = std::fma(acc[c][l], 0.999f, 0.001f);
    float s = 0;
    for (auto& chain : acc)
      for (float lane : chain) s += lane;
#pragma omp critical
    *out += s;
  }
}

}  // namespace

int main() {
  const int threads = omp_get_max_threads();
  std::printf("threads %d\n", threads);

  const std::int64_t most = std::int64_t{64} << 20;
  float* a = floats(most);
  float* b = floats(most);
  for (const int active : {1, threads}) {
    omp_set_num_threads(active);
    for (const std::int64_t kib : {32, 512, 8192, 262144}) {
      const std::int64_t n = kib * 1024 / 8;  // source and destination together are `kib` KiB
      const int inner = static_cast<int>(std::max<std::int64_t>(1, 65536 / kib));
      const double bytes = 8.0 * static_cast<double>(n) * inner;
      const double plain = median_seconds([&] { for (int i = 0; i < inner; ++i) copy_plain(a, b, n); });
      const double stream = median_seconds([&] { for (int i = 0; i < inner; ++i) copy_streaming(a, b, n); });
      std::printf("scale %7ld KiB both arrays, %d thread(s): plain %6.1f GB/s, streaming %6.1f GB/s\n",
                  static_cast<long>(kib), active, bytes / plain / 1e9, bytes / stream / 1e9);
    }
  }
  omp_set_num_threads(threads);
  {
    const double t = median_seconds([&] { sink = sum_all_threads(a, most); });
    std::printf("read 256 MiB, all threads: %.1f GB/s\n", 4.0 * static_cast<double>(most) / t / 1e9);
  }

  const std::int64_t n = 8192;  // 32 KiB: fits the first-level cache
  const auto per_element = [&](const std::function<void()>& body) {
    return median_seconds([&] { for (int i = 0; i < 2000; ++i) body(); }) / 2000 / static_cast<double>(n) * 1e9;
  };
  std::printf("sum, one accumulator:            %.3f ns/element\n", per_element([&] { sink = sum_one(a, n); }));
  std::printf("sum, omp simd reduction:         %.3f ns/element\n", per_element([&] { sink = sum_simd(a, n); }));
  std::printf("sum, 64 lanes by hand:           %.3f ns/element\n", per_element([&] { sink = sum_blocked(a, n); }));
  std::printf("exp, libm call:                  %.3f ns/element\n", per_element([&] { exp_libm(a, b, n); }));
  std::printf("exp, inlined polynomial:         %.3f ns/element\n", per_element([&] { exp_poly(a, b, n); }));
  std::printf("erf, libm call:                  %.3f ns/element\n", per_element([&] { erf_libm(a, b, n); }));

  const std::int64_t side = 4096;
  std::printf("column sum 4096x4096, strided:   %.2f ms\n",
              1e3 * median_seconds([&] { column_sum_strided(a, b, side, side); }, 3));
  std::printf("column sum 4096x4096, row order: %.2f ms\n",
              1e3 * median_seconds([&] { column_sum_rowwise(a, b, side, side); }, 7));
  std::printf("transpose 4096x4096, naive:      %.2f ms\n",
              1e3 * median_seconds([&] { transpose_naive(a, b, side); }, 3));
  std::printf("transpose 4096x4096, 16x16:      %.2f ms\n",
              1e3 * median_seconds([&] { transpose_blocked<16>(a, b, side); }, 7));
  std::printf("transpose 4096x4096, 64x64:      %.2f ms\n",
              1e3 * median_seconds([&] { transpose_blocked<64>(a, b, side); }, 7));

  for (const std::int64_t cols : {512, 65536}) {
    const std::int64_t rows = (std::int64_t{8} << 20) / cols;
    std::printf("softmax 32 MiB in rows of %ld: three passes %.2f ms, online %.2f ms\n", static_cast<long>(cols),
                1e3 * median_seconds([&] { softmax_three_pass(a, b, rows, cols); }),
                1e3 * median_seconds([&] { softmax_online(a, b, rows, cols); }));
  }

  const double region = median_seconds([&] {
    for (int i = 0; i < 1000; ++i) {
#pragma omp parallel
      { sink = 1.0f; }
    }
  }) / 1000;
  std::printf("empty parallel region:           %.2f us\n", 1e6 * region);
  const std::int64_t items = 100000;
  for (const char* kind : {"static", "dynamic"}) {
    omp_set_schedule(kind[0] == 's' ? omp_sched_static : omp_sched_dynamic, kind[0] == 's' ? 0 : 1);
    const double t = median_seconds([&] {
#pragma omp parallel for schedule(runtime)
      for (std::int64_t i = 0; i < items; ++i) b[i] = a[i];
    });
    std::printf("schedule(%s%s): %.2f ns per one-element iteration\n", kind, kind[0] == 's' ? "" : ",1",
                1e9 * t / static_cast<double>(items));
  }

  float out = 0;
  const double peak = median_seconds([&] { fma_chains(&out); }, 5);
  sink = out;
  std::printf("fp32 FMA, %d thread(s): %.0f GFLOP/s\n", threads, threads * 2000000.0 * 12 * 16 * 2 / peak / 1e9);
}
