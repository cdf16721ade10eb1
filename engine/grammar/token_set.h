// Which tokens of a vocabulary are allowed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

class token_set {
  public:
    explicit token_set(size_t n) : words((n + 63) / 64), n(n) {}

    size_t size() const { return n; }
    bool   operator[](size_t token) const { return (words[token / 64] >> (token % 64) & 1) != 0; }
    void   add(size_t token) { words[token / 64] |= (uint64_t) 1 << (token % 64); }

  private:
    std::vector<uint64_t> words;
    size_t                n;
};
