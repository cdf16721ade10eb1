// The lines that the engine writes (protocol 1): JSON objects, one a line. docs/engine-protocol.md describes every line.
#pragma once

#include "model/embedding.h"
#include "util/json.h"

#include <string>
#include <string_view>

const int protocol_version = 1;

// Appends one event to a string, field by field; the line is complete when the object goes.
class event_line {
  public:
    event_line(std::string & out, const char * event, const std::string & id);
    event_line(std::string & out, const char * event);
    ~event_line();
    event_line(const event_line &)             = delete;
    event_line & operator=(const event_line &) = delete;

    event_line & text(const char * name, std::string_view value);
    event_line & whole(const char * name, int64_t value);
    event_line & real(const char * name, double value);
    event_line & raw(const char * name, std::string_view json_text);

  private:
    void          key(const char * name);
    std::string & out;
};

// number: of the line that it answers; 0: none.
std::string error_line(const std::string & id, const command_error & e, int64_t number = 0);

void append_embeddings(std::string & out, const embedding_results & results);

// All of `out` in one write where the pipe takes it; empties it. Ends the process when nobody reads any
// more.
void write_lines(int fd, std::string & out);

// A private copy of stdout for the events; descriptor 1 then leads to stderr, because llama.cpp logs to it.
int take_stdout();
