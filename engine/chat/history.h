// A chat's messages in forms that templates take, so that what clients usually send is not refused.
#pragma once

#include <string>
#include <vector>

struct chat_history {
    std::string messages;
    // For templates that take only one message of the system, the first: the user tells the others. Empty: there are none.
    std::string              told_by_user;
    std::vector<std::string> of_system; // the texts of the system's messages
};

// messages: a list as JSON. Arguments of calls become an object, as far as the template reads objects
// (`object_arguments`), and messages of system and developer at the beginning become one.
chat_history read_history(const std::string & messages, bool object_arguments);

// Whether a prompt has all these texts, but for white space around them.
bool has_texts(const std::string & prompt, const std::vector<std::string> & texts);
