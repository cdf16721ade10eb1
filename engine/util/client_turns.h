// Turns at work that is done for one client after another, however much one of them asks for.
#pragma once

#include <cstdint>
#include <map>
#include <string>

class client_turns {
  public:
    // The number of the client's last turn: the client with the lowest one is next. 0: it has had none.
    int64_t last_of(const std::string & client) const {
        const auto found = last.find(client);
        return found == last.end() ? 0 : found->second;
    }
    void take(const std::string & client) { last[client] = ++n_turns; }
    // When nothing waits any more: else the names of all clients ever would be kept.
    void forget() { last.clear(); }

  private:
    std::map<std::string, int64_t> last;
    int64_t                        n_turns = 0;
};
