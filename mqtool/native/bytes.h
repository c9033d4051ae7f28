/* Numbers, runs of bytes and checksums in buffers. Nothing here checks a bound unless it takes a limit. */
#ifndef MQTOOL_BYTES_H
#define MQTOOL_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Numbers as records hold them, their highest byte first; compilers make one load or store and one swap of each. */

static inline uint64_t word_at(const uint8_t *at) { /* the first byte lowest */
    uint64_t word;
    memcpy(&word, at, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

static inline int64_t i64_at(const uint8_t *at) { return (int64_t)__builtin_bswap64(word_at(at)); }

static inline int64_t i32_at(const uint8_t *at) {
    return (int32_t)((uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3]);
}

static inline int64_t i16_at(const uint8_t *at) { return (int16_t)(at[0] << 8 | at[1]); }

static inline void put_i64(uint8_t *at, int64_t value) {
    for (int place = 0; place < 8; place++) at[place] = (uint8_t)((uint64_t)value >> (56 - 8 * place));
}

static inline void put_i32(uint8_t *at, int64_t value) {
    for (int place = 0; place < 4; place++) at[place] = (uint8_t)((uint64_t)value >> (24 - 8 * place));
}

static inline void put_i16(uint8_t *at, int64_t value) {
    at[0] = (uint8_t)((uint64_t)value >> 8);
    at[1] = (uint8_t)value;
}

/* The first eight bytes of a string, padded with zeros; no byte from the limit on is read. */
static inline uint64_t first_word(const uint8_t *at, int64_t length, const uint8_t *limit) {
    uint64_t word = 0;
    if (limit - at >= 8) {
        word = word_at(at);
        return length >= 8 ? word : length <= 0 ? 0 : word & (~(uint64_t)0 >> (64 - 8 * length));
    }
    for (int64_t place = 0; place < length && place < 8; place++) word |= (uint64_t)at[place] << (8 * place);
    return word;
}

/* Whether two strings of one length are equal, a word at a time: most are topics of few bytes. */
static inline int is_equal(const uint8_t *at, const uint8_t *limit, const uint8_t *other, const uint8_t *other_limit,
                           int64_t length) {
    uint64_t differs = 0;
    for (int64_t done = 0; done < length; done += 8)
        differs |= first_word(at + done, length - done, limit) ^ first_word(other + done, length - done, other_limit);
    return differs == 0;
}

/* Bytes in blocks of 64, a bit for each, the first one lowest. */

struct marks {
    uint64_t first;  /* bytes that equal one */
    uint64_t second; /* or another */
    uint64_t high;   /* bytes above 0x7F */
};

#if defined(__SSE2__)
#include <emmintrin.h>
static inline struct marks marks_in(const uint8_t *block, uint8_t first, uint8_t second) {
    const __m128i one = _mm_set1_epi8((char)first), other = _mm_set1_epi8((char)second);
    struct marks marks = {0, 0, 0};
    for (int part = 0; part < 4; part++) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(block + 16 * part));
        marks.first |= (uint64_t)(uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, one)) << (16 * part);
        marks.second |= (uint64_t)(uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, other)) << (16 * part);
        marks.high |= (uint64_t)(uint32_t)_mm_movemask_epi8(bytes) << (16 * part);
    }
    return marks;
}
#else
/* The highest bits of eight bytes, gathered in the lowest byte. */
static inline uint64_t gathered(uint64_t word) {
    return (((word & 0x8080808080808080) >> 7) * 0x0102040810204080) >> 56;
}

/* The highest bit of each byte that equals one; exact, byte by byte. */
static inline uint64_t equal_in(uint64_t word, uint8_t byte) {
    word ^= 0x0101010101010101 * (uint64_t)byte;
    return ~(((word & 0x7F7F7F7F7F7F7F7F) + 0x7F7F7F7F7F7F7F7F) | word);
}

static inline struct marks marks_in(const uint8_t *block, uint8_t first, uint8_t second) {
    struct marks marks = {0, 0, 0};
    for (int part = 0; part < 8; part++) {
        uint64_t word = word_at(block + 8 * part);
        marks.first |= gathered(equal_in(word, first)) << (8 * part);
        marks.second |= gathered(equal_in(word, second)) << (8 * part);
        marks.high |= gathered(word) << (8 * part);
    }
    return marks;
}
#endif

/* The block at a position that is before the limit; zeros follow the last byte, so no zero may be searched for. */
static inline struct marks marks_from(const uint8_t *at, const uint8_t *limit, uint8_t first, uint8_t second) {
    uint8_t block[64] = {0};
    if (limit - at >= 64) return marks_in(at, first, second);
    memcpy(block, at, (size_t)(limit - at));
    return marks_in(block, first, second);
}

static inline int lowest_bit(uint64_t bits) { return bits ? __builtin_ctzll(bits) : 64; }

static inline void fetch_ahead(const void *at) { __builtin_prefetch(at, 0, 3); }

static inline void keep_order(void) { __atomic_thread_fence(__ATOMIC_RELEASE); }

uint32_t mqtool_crc32(const uint8_t *data, size_t size);

#endif
