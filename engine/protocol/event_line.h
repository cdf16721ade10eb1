// The lines that the engine writes (protocol 1): JSON objects, one a line. docs/engine-protocol.md describes every line.
#pragma once

#include "model/embedding.h"
#include "util/json.h"

#include <string>
#include <string_view>

const int protocol_version = 1;

// Appends one event to a string, field by field; its destructor completes the line.
class event_line {
  public:
    event_line(std::string & out, const char * event, const std::string & id);
    event_line(std::string & out, const char * event);
    ~event_line();
    event_line(const event_line &)             = delete;
    event_line & operator=(const event_line &) = delete;

    event_line & text(const char * name, std::string_view value);
    event_line & integer(const char * name, int64_t value);
    event_line & number(const char * name, double value);
    event_line & raw(const char * name, std::string_view json_text);

  private:
    void          key(const char * name);
    std::string & out;
};

// number: of the command's line; 0: unknown.
std::string error_line(const std::string & id, const command_error & e, int64_t number = 0);

void append_embeddings(std::string & out, const embedding_results & results);

// Writes `out`, in one write if the pipe has room, and clears it. Ends the process when the pipe is closed.
void write_lines(int fd, std::string & out);

// A copy of stdout for the events. Descriptor 1 is stderr from then on, because llama.cpp logs to it.
int take_stdout();
