// Messages that follow an answer of the model, behind the exact tokens of that answer.
#pragma once

#include "chat/chat.h"

// The prompt of a chat command whose messages follow an answer that is not among them: what stands behind the answer's
// text, which begins with the end of its message. Messages up to the last one of the assistant, if there is one, are left
// out. Throws command_error if none is left, or if the template does not show the answer.
chat_prompt prompt_behind_answer(chat_templates & templates, const nlohmann::json & fields);
