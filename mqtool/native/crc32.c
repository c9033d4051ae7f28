/* CRC-32 as zlib, Java and records have it. Body checksums are most of the work of reading a log.
 *
 * Processors with carry-less multiplication fold 64 bytes at a time (Gopal et al., "Fast CRC Computation for Generic
 * Polynomials Using PCLMULQDQ Instruction", Intel 2009, with the constants of its appendix for this polynomial);
 * ARM has an instruction for it; tables do the rest, eight bytes at a time.
 */
#include "bytes.h"

#define POLYNOMIAL 0xEDB88320u

static uint32_t tables[8][256];

__attribute__((constructor)) static void fill_tables(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
        tables[0][byte] = crc;
    }
    for (int row = 1; row < 8; row++)
        for (int byte = 0; byte < 256; byte++)
            tables[row][byte] = tables[row - 1][byte] >> 8 ^ tables[0][tables[row - 1][byte] & 0xFF];
}

static uint32_t by_tables(uint32_t crc, const uint8_t *data, size_t size) {
    for (; size >= 8; data += 8, size -= 8) {
        uint64_t word = word_at(data) ^ crc;
        crc = 0;
        for (int place = 0; place < 8; place++) crc ^= tables[7 - place][word >> (8 * place) & 0xFF];
    }
    if (size >= 4) {
        crc ^= data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
        crc = tables[3][crc & 0xFF] ^ tables[2][crc >> 8 & 0xFF] ^ tables[1][crc >> 16 & 0xFF] ^ tables[0][crc >> 24];
        data += 4, size -= 4;
    }
    while (size--) crc = crc >> 8 ^ tables[0][(crc ^ *data++) & 0xFF];
    return crc;
}

#if defined(__x86_64__)
#include <immintrin.h>

#define FOLD(value, by, next) \
    _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(value, by, 0x00), _mm_clmulepi64_si128(value, by, 0x11)), next)

/* A multiple of 16 bytes, at least 64. */
__attribute__((target("pclmul,sse4.1"))) static uint32_t by_folding(uint32_t crc, const uint8_t *data, size_t size) {
    const __m128i by_64 = _mm_set_epi64x(0x01C6E41596, 0x0154442BD4);
    const __m128i by_16 = _mm_set_epi64x(0x00CCAA009E, 0x01751997D0);
    const __m128i by_8 = _mm_set_epi64x(0, 0x0163CD6124);
    const __m128i barrett = _mm_set_epi64x(0x01F7011641, 0x01DB710641);
    const __m128i low_words = _mm_setr_epi32(-1, 0, -1, 0);
    const __m128i *block = (const __m128i *)data;
    __m128i a = _mm_xor_si128(_mm_loadu_si128(block), _mm_cvtsi32_si128((int)crc)), b = _mm_loadu_si128(block + 1);
    __m128i c = _mm_loadu_si128(block + 2), d = _mm_loadu_si128(block + 3);
    for (block += 4, size -= 64; size >= 64; block += 4, size -= 64) {
        a = FOLD(a, by_64, _mm_loadu_si128(block));
        b = FOLD(b, by_64, _mm_loadu_si128(block + 1));
        c = FOLD(c, by_64, _mm_loadu_si128(block + 2));
        d = FOLD(d, by_64, _mm_loadu_si128(block + 3));
    }
    a = FOLD(FOLD(FOLD(a, by_16, b), by_16, c), by_16, d);
    for (; size >= 16; block++, size -= 16) a = FOLD(a, by_16, _mm_loadu_si128(block));
    a = _mm_xor_si128(_mm_srli_si128(a, 8), _mm_clmulepi64_si128(a, by_16, 0x10));
    a = _mm_xor_si128(_mm_srli_si128(a, 4), _mm_clmulepi64_si128(_mm_and_si128(a, low_words), by_8, 0x00));
    b = _mm_clmulepi64_si128(_mm_and_si128(a, low_words), barrett, 0x10);
    b = _mm_clmulepi64_si128(_mm_and_si128(b, low_words), barrett, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(a, b), 1);
}

static int can_fold(void) { return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1"); }
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>

static uint32_t by_folding(uint32_t crc, const uint8_t *data, size_t size) {
    for (; size; data += 8, size -= 8) crc = __crc32d(crc, word_at(data));
    return crc;
}

static int can_fold(void) { return 1; }
#else
static uint32_t by_folding(uint32_t crc, const uint8_t *data, size_t size) { return by_tables(crc, data, size); }

static int can_fold(void) { return 0; }
#endif

uint32_t mqtool_crc32(const uint8_t *data, size_t size) {
    uint32_t crc = ~(uint32_t)0;
    if (size >= 64 && can_fold()) {
        size_t folded = size & ~(size_t)15;
        crc = by_folding(crc, data, folded);
        data += folded;
        size -= folded;
    }
    return ~by_tables(crc, data, size);
}
