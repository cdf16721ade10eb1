// The folder of the prefix cache, which processes may share.
//
// Whatever touches the disk happens on a thread of its own, so that a slow, full or hanging disk delays no
// token: it hashes the model's files, lists the folder, reads, checks, writes and removes. The engine's
// thread asks, goes on, and takes the news when it comes by. A file that is damaged, foreign or half written
// is a line in the log and a miss, and so is a full disk.
#pragma once

#include "cache/snapshot.h"
#include "model/fingerprint.h"

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

struct folder_params {
    std::string path;
    std::string model;                   // its first file
    uint64_t    n_bytes_max         = 0; // of all files there
    uint64_t    n_bytes_waiting_max = 0; // of those that wait to be written; one of any size may
};

// Files have numbers here, never 0; one that is written anew has a new one.
struct folder_news {
    enum kind { found, gone, read };

    kind                     what = gone;
    uint64_t                 file = 0;
    std::vector<llama_token> tokens; // of one that was found
    uint64_t                 adapters = 0;
    snapshot_parts           parts; // of one that was read
};

class prefix_folder {
  public:
    // Begins to hash the model, beside its loading.
    explicit prefix_folder(folder_params params);
    ~prefix_folder(); // what has not been written is lost
    prefix_folder(const prefix_folder &)             = delete;
    prefix_folder & operator=(const prefix_folder &) = delete;

    // The model is loaded. `settings` stands for everything else that the meaning of a snapshot depends on.
    // Until the model's files are hashed, too, nothing is read, and what is to be written waits.
    void open(uint64_t settings);
    // Waits until all is written, as long as the disk does not hang. The process is to end then.
    void finish();

    // Of a file to be; 0: it will not be written, since the folder is of no use, or too much waits.
    uint64_t write(const std::vector<llama_token> & tokens, uint64_t adapters, const snapshot_parts & parts);
    // It was used now.
    void touch(uint64_t file);

    // Whether it is worth asking: the folder is of use, and does not hang.
    bool answers() const;
    // Each asks for something that comes as news, and gives the number of the question.
    uint64_t ask_for_list();
    uint64_t ask_for(uint64_t file);
    // Whether a question is not answered yet, and may still be within a reasonable time.
    bool is_open(uint64_t question) const;

    std::vector<folder_news> take_news();

  private:
    enum state { opening, usable, useless };

    struct job {
        std::vector<llama_token> tokens;
        uint64_t                 adapters;
        snapshot_parts           parts;
        uint64_t                 file;
    };
    struct known_file {
        uint64_t      file = 0; // 0: of no use
        file_identity identity; // of one that is of no use: it may become another one
        bool          seen = true;
    };
    struct own_file {
        std::string name;
        uint64_t    used_ns;
        uint64_t    n_bytes;
        bool        unfinished;
    };

    void run();
    bool hash_model();
    void give_up(const char * why);
    bool pulse(bool progress);

    void serve_questions();
    void look();
    void list();
    void look_at(const std::string & name);
    void read_file(uint64_t file);
    void touch_files();
    bool write_next();
    int  write_as(const job & j, const std::string & name);
    int  try_to_write(const job & j, const std::string & name);
    void limit(uint64_t n_bytes_max);
    bool make_room(uint64_t n_bytes);
    void forget(const std::string & name);
    void tell(folder_news && n);

    std::vector<own_file> own_files() const;
    std::string           name_of(const job & j) const;
    std::string           path_of(const std::string & name) const { return params.path + "/" + name; }
    void                  complain(const std::string & name, const std::string & why);
    void                  complain_once(std::string & last, const std::string & why);
    bool                  hangs() const;

    const folder_params params;
    const weight_files  weights;

    // of the thread
    uint64_t                                  fingerprint = 0;
    std::map<std::string, known_file>         known;         // by name
    std::unordered_map<uint64_t, std::string> names;         // of files that are written
    uint64_t                                  listed_ns = 0; // the folder's time of change when it was listed
    std::string                               last_list_error, last_write_error;

    mutable std::mutex           mutex; // of what follows
    std::condition_variable      changed;
    std::condition_variable      ended;
    state                        now    = opening;
    bool                         loaded = false, closing = false, dropped = false, is_over = false;
    uint64_t                     settings  = 0;
    uint64_t                     last_file = 0;
    std::deque<job>              jobs; // the first one may be in the making
    uint64_t                     n_job_bytes = 0, n_refused = 0;
    std::unordered_set<uint64_t> touched;
    std::deque<uint64_t>         questions; // files to be read; 0: the list
    uint64_t                     n_asked = 0, n_answered = 0;
    std::vector<folder_news>     news;
    int64_t                      t_loaded = 0, t_alive = 0; // us
    std::thread                  thread;
};
