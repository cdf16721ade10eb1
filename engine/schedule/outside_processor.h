// The operator's own logits processor: a program in a process of its own, which gets rows of logits over shared memory and
// changes them before tokens are drawn. Nobody waits for it: what is drawn from such a row takes part in no step until the
// row is back.
//
// Its descriptors 3 and 4 are a socket and the memory. It reads lines of JSON from the socket and answers each with one:
//   {"n_vocab","n_ctx","n_rows","stride","pieces","ends"}  first; the pieces' bytes are characters  -> {} or {"error"}
//   {"id","rows":[{"index","prompt","output","arguments"}]}    numbers of tokens; one request's rows   -> {} or {"error"}
// Row i of a line lies in the memory at i * stride: n_vocab floats, then the tokens of the prompt and the text, int32.
#pragma once

#include "model/vocabulary.h"
#include "util/client_turns.h"

#include <sys/types.h>

#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

struct outside_params {
    std::vector<std::string> command;        // the program and its arguments; empty: there is none
    double                   seconds = 10.0; // that one request's rows may take
    int32_t                  n_vocab = 0;
    int32_t                  n_ctx   = 0; // tokens of a text at most
    int32_t                  n_rows  = 1; // of a request at once
};

// A row on its way to the processor and back. Between `send` and `take` it belongs to the processor.
struct outside_row {
    int32_t                            index = 0; // of its sequence
    std::shared_ptr<const std::string> arguments; // JSON, of the request
    std::vector<llama_token>           tokens;    // of the prompt, and of the text so far
    int32_t                            n_prompt = 0;
    std::vector<float>                 logits;    // as the model made them
    std::vector<float>                 processed; // what the processor gets, and makes of it
    std::string                        error;     // why it is not processed
    int64_t t_us    = 0;     // of the processor, for all rows of a line; the first of them has it
    bool    is_back = false; // set by `take`
};
using outside_rows = std::vector<std::shared_ptr<outside_row>>;

class outside_processor {
  public:
    // Starts the program and waits until it is ready. Throws std::runtime_error with what it says.
    outside_processor(outside_params params, const vocabulary & vocab);
    ~outside_processor();

    // From any thread, when rows are back.
    void when_back(std::function<void()> call);
    // Rows of the sequences of one request, which its client sends. Those that nobody else holds any more are dropped.
    void send(const std::string & client, const std::string & id, outside_rows && rows);
    // Those that have come back.
    outside_rows take();

  private:
    struct batch {
        std::string  client, id;
        outside_rows rows;
    };

    void        run();
    batch       next();
    void        start();
    void        end();
    std::string how_ended(int t_ms);
    void        process(batch & b);
    void        check(outside_row & row) const;
    std::string ask(const std::string & line, double seconds);
    char *      place_of(size_t i) const { return memory + i * stride; }

    const outside_params params;
    const size_t         stride; // bytes of a row and its tokens
    std::string          first_line;
    int                  fd_memory = -1;
    char *               memory    = nullptr;
    int                  fd_socket = -1;
    pid_t                pid       = -1; // -1: it does not run

    std::mutex              mutex; // of the members below
    std::condition_variable changed;
    std::list<batch>        waiting; // in order of arrival
    outside_rows            back;
    client_turns            turns;
    std::function<void()>   on_back = [] {};
    bool                    ends    = false;
    std::thread             thread; // last: it uses the members above
};
