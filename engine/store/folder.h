// The folder of the prefix cache, which several processes may share.
//
// Everything that uses the disk runs on a thread of its own, so that a slow, full or hanging disk delays no token: that
// thread hashes the model's files, and lists, reads, checks, writes and removes files (folder_files.h). The engine's
// thread asks questions, continues, and takes the answers later.
#pragma once

#include "store/folder_files.h"
#include "store/snapshot.h"
#include "weights/fingerprint.h"

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

struct folder_params {
    std::string path;
    std::string model;                   // its first file
    uint64_t    n_bytes_max         = 0; // of all files in the folder
    uint64_t    n_bytes_waiting_max = 0; // of prefixes that wait to be written; one of any size may wait
};

// Prefixes that wait to be written.
class write_queue {
  public:
    explicit write_queue(uint64_t n_bytes_max) : n_bytes_max(n_bytes_max) {}

    bool             push(file_job && job);                 // false: the queue is full
    const file_job & front() const { return jobs.front(); } // keeps its address until it is removed
    void             pop();
    bool             empty() const { return jobs.empty(); }
    size_t           size() const { return jobs.size(); }
    snapshot_parts   parts_of(uint64_t file) const; // none: it does not wait
    // All jobs, which are not written.
    std::deque<file_job> take_all();
    // How many prefixes were refused since the last call.
    uint64_t take_refused();

  private:
    const uint64_t       n_bytes_max;
    std::deque<file_job> jobs;
    uint64_t             n_bytes = 0, n_refused = 0;
};

// Questions in the order in which they are answered, by number.
class question_queue {
  public:
    uint64_t                push(uint64_t file);
    std::optional<uint64_t> pop();
    void                    answer_one() { n_answered++; }
    uint64_t                answer_all();
    bool                    empty() const { return files.empty(); }
    bool                    is_open(uint64_t question) const { return n_answered < question; }
    bool                    any_open() const { return n_answered < n_asked; }

  private:
    std::deque<uint64_t> files; // to be read; 0: the list
    uint64_t             n_asked = 0, n_answered = 0;
};

class prefix_folder {
  public:
    // Begins to hash the model's files, while the model is loaded.
    explicit prefix_folder(folder_params params);
    ~prefix_folder(); // prefixes that still wait are not written
    prefix_folder(const prefix_folder &)             = delete;
    prefix_folder & operator=(const prefix_folder &) = delete;

    // The model is loaded. `settings` stands for everything else that the meaning of a snapshot depends on. Until the
    // model's files are hashed, nothing is read, and prefixes wait to be written.
    void open(uint64_t settings);
    // Waits until all is written, as long as the disk makes progress. Then the process must end.
    void finish();

    // Returns the number of the future file; 0: it will not be written, since the folder is of no use or too many
    // prefixes wait.
    uint64_t write(const std::vector<llama_token> & tokens, uint64_t adapters, const snapshot_parts & parts);
    // A file was used now.
    void touch(uint64_t file);

    // Whether the folder is of use and does not hang.
    bool answers() const;
    // Ask for news, and return the number of the question.
    uint64_t ask_for_list() { return ask_for(0); }
    uint64_t ask_for(uint64_t file);
    // Whether a question is not answered yet, but may still be within a reasonable time.
    bool is_open(uint64_t question) const;

    std::vector<folder_news> take_news();

  private:
    struct life {
        enum state { opening, usable, useless };

        state    now    = opening;
        bool     loaded = false, closing = false, dropped = false, ended = false;
        uint64_t settings = 0;
        int64_t  t_loaded = 0, t_progress = 0; // us

        bool hangs(bool asked) const;
    };

    void run();
    bool hash_model();
    void give_up();
    bool continues(bool progress);
    void serve_questions();
    void answer(uint64_t file);
    void touch_files();
    bool write_next();
    void report(folder_news && n);

    const folder_params params;
    const weight_files  weights;
    folder_files        files; // of the thread

    mutable std::mutex           mutex; // of all below
    std::condition_variable      changed;
    life                         stage;
    uint64_t                     last_file = 0;
    write_queue                  writes;
    question_queue               questions;
    std::unordered_set<uint64_t> touched;
    std::vector<folder_news>     news;
    std::thread                  thread;
};
