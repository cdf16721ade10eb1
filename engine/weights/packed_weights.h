// The packed weights of a model in a file, which the next start maps instead of packing the weights again.
//
// The CPU backend packs weights of some types for its products. That takes seconds for a large model, and as much memory
// as the file of the model. patches/0009 reads and writes the packed ones; here is decided which file, and when.
#pragma once

#include "weights/fingerprint.h"

#include <atomic>
#include <string>
#include <thread>

class packed_weights {
  public:
    // Before the model is loaded. folder: is made if it is not there; empty: weights are packed at each start.
    packed_weights(const std::string & folder, const std::string & model_path);
    // An unfinished file is dropped.
    ~packed_weights();

    // Once the model is there: a thread writes the file, unless the one that is there has all packed weights. It then
    // removes the files of what stood at the model's path before. A mapped file is copied into huge pages.
    void keep();
    // Waits for that thread, which finishes a file, but no copy.
    void finish();

  private:
    void copy();
    void write();
    void remove_earlier() const;

    weight_files      files;
    std::string       folder;
    std::string       file;           // its name in the folder; empty: none is used
    std::atomic<bool> stopped{false}; // the file is not needed any more
    std::atomic<bool> ended{false};   // the copy is not
    std::thread       worker;
};
