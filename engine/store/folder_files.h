// The files in the folder of the prefix cache, by number: listed, read, written, removed. Other processes use the
// folder, too. A faulty file, a full disk and a missing folder are a line in the log, never an error.
//
// All of this runs on the thread of the folder (folder.h), and may take as long as the disk takes.
#pragma once

#include "store/snapshot.h"
#include "weights/fingerprint.h"

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

// Files have numbers, never 0; a file that is written again has a new number.
struct folder_news {
    enum kind { found, gone, read };

    kind                     what = gone;
    uint64_t                 file = 0;
    std::vector<llama_token> tokens; // of a file that was found
    uint64_t                 adapters = 0;
    snapshot_parts           parts; // of a file that was read
};

// A prefix that is to be written.
struct file_job {
    std::vector<llama_token> tokens;
    uint64_t                 adapters;
    snapshot_parts           parts;
    uint64_t                 file;
};

// Calls that the files make.
struct folder_calls {
    std::function<uint64_t()>             next_number;
    std::function<void(folder_news && n)> report;
    std::function<void()>                 progress;    // after a MiB or a file
    std::function<void()>                 while_write; // after each MiB that is written
};

// A line in the log about a file, or about the folder.
void complain(const std::string & path, const std::string & why);

class folder_files {
  public:
    // Creates the folder.
    folder_files(std::string path, uint64_t n_bytes_max, folder_calls calls);

    // Before all below. fingerprint: of everything that the meaning of a file depends on.
    void open(uint64_t f) { fingerprint = f; }

    // Reports which files are new and which are gone. A folder that has not changed is not listed again.
    void look();
    // The parts of a file. None: the file is of no use, which is reported, too.
    snapshot_parts read(uint64_t file);
    // A file was used now.
    void touch(uint64_t file);
    // False: it was not written, because of an error or because another process has written it.
    bool write(const file_job & job);

  private:
    struct known_file {
        uint64_t      file = 0; // 0: it is of no use
        file_identity identity; // of a file of no use: it is checked again when it has changed
        bool          seen = true;
    };

    void        list();
    void        look_at(const std::string & name);
    void        forget(const std::string & name);
    std::string name_of(const file_job & job) const;
    int         write_as(const file_job & job, const std::string & name);
    int         try_to_write(const file_job & job, const std::string & name);
    std::string path_of(const std::string & name) const { return path + "/" + name; }
    void        complain_once(std::string & last, const std::string & why) const;

    const std::string  path;
    const uint64_t     n_bytes_max;
    const folder_calls calls;

    uint64_t                                  fingerprint = 0;
    std::map<std::string, known_file>         known;         // by name
    std::unordered_map<uint64_t, std::string> names;         // by number
    uint64_t                                  listed_ns = 0; // the folder's time of change when it was listed
    std::string                               last_list_error, last_write_error;
};
