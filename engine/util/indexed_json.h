// JSON whose objects keep the order of their members, and find one by its name at once. nlohmann::ordered_json looks at
// all members for that, also while it reads: 60,000 of them take five seconds.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

template <class key, class value, class less = std::less<key>,
          class allocator = std::allocator<std::pair<const key, value>>>
struct indexed_map : nlohmann::ordered_map<key, value, less, allocator> {
    using base           = nlohmann::ordered_map<key, value, less, allocator>;
    using iterator       = typename base::iterator;
    using const_iterator = typename base::const_iterator;
    using size_type      = typename base::size_type;
    using base::base;

    template <class name> std::pair<iterator, bool> emplace(const name & at, value && one) {
        if (const iterator found = find(at); found != this->end()) {
            return {found, false};
        }
        this->emplace_back(at, std::move(one));
        for (size_type i = places.size(); this->size() > n_linear && i < this->size(); i++) {
            places.emplace(base::data()[i].first, i);
        }
        return {std::prev(this->end()), true};
    }

    template <class name> iterator       find(const name & at) { return this->begin() + place(at); }
    template <class name> const_iterator find(const name & at) const { return this->begin() + place(at); }
    template <class name> size_type      count(const name & at) const { return find(at) != this->end(); }
    template <class name> value & operator[](const name & at) { return emplace(at, value()).first->second; }
    template <class... what> auto erase(what &&... which) {
        places.clear(); // the others move; they are looked at one by one until a member is added
        return base::erase(std::forward<what>(which)...);
    }

  private:
    static constexpr size_type n_linear = 16; // members among which a look at each is as quick

    template <class name> std::ptrdiff_t place(const name & at) const {
        size_type i = 0;
        if (places.size() == this->size()) {
            const auto found = places.find(std::string(at));
            i                = found == places.end() ? this->size() : found->second;
        } else {
            for (; i < this->size() && std::string_view(base::data()[i].first) != std::string_view(at); i++) {
            }
        }
        return (std::ptrdiff_t) i;
    }

    std::unordered_map<std::string, size_type> places; // by name, where there are more than n_linear
};

using indexed_json = nlohmann::basic_json<indexed_map>;
