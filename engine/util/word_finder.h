// Many words at once: stop strings or banned phrases.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

// Searches for many words at once, byte by byte (Aho and Corasick 1975): the cost of a byte does not depend on the number
// and length of the words. Many texts share one finder; each text has its own state, which is 0 at the beginning.
class word_finder {
  public:
    explicit word_finder(const std::vector<std::string> & words = {});

    int32_t next(int32_t state, char byte) const;

    // The length of the longest suffix of the bytes so far that is a prefix of a word.
    size_t n_begun(int32_t state) const { return nodes[(size_t) state].depth; }
    // The longest word that is a suffix of the bytes so far; nullptr: none.
    const std::string * word(int32_t state) const {
        const int32_t found = nodes[(size_t) state].word;
        return found < 0 ? nullptr : &words[(size_t) found];
    }
    bool empty() const { return words.empty(); }

  private:
    struct node {
        int32_t  shorter = 0;  // the state of the next shorter suffix that is a prefix of a word
        int32_t  word    = -1; // the longest word that ends here
        uint32_t depth   = 0;
        uint32_t first   = 0; // of its edges
        uint32_t n_edges = 0;
    };
    struct edge {
        uint8_t byte;
        int32_t to;
    };

    void    link();
    int32_t child(int32_t state, uint8_t byte) const; // -1: none

    std::vector<std::string> words;
    std::vector<node>        nodes; // by depth
    std::vector<edge>        edges; // grouped by node, sorted by byte
};

using word_finder_ptr = std::shared_ptr<const word_finder>; // nullptr: no words
