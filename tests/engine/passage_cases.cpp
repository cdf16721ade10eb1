// Where a text ends that may have so many sentences or paragraphs.
#include "cases.h"
#include "text/stop_strings.h"

static const passage_unit sentences = passage_unit::sentences, paragraphs = passage_unit::paragraphs;

// The | stands where the text ends; without it the text has not ended.
struct passage_row {
    const char *  name;
    passage_limit limit;
    const char *  text;
};

// clang-format off
static const passage_row table[] = {
    {"a full stop", {1, sentences}, " He ran.| He fell."},
    {"the second sentence", {2, sentences}, " He ran. He fell.| She"},
    {"nothing shows the end yet", {1, sentences}, " He ran. "},
    {"a question and a surprise", {1, sentences}, "What?!| He"},
    {"an end before a number", {1, sentences}, "He ran.| 3 dogs came."},
    {"a lower letter goes on", {1, sentences}, "Stop! he said.| Then"},
    {"a lower letter of Cyrillic", {1, sentences}, "Стой! сказал он.| Она"},
    {"a decimal", {1, sentences}, "It cost 3.5 or $4.25 a day.| He"},
    {"a title", {1, sentences}, "Mr. Fox met Dr. Hen.| He"},
    {"the second title", {1, sentences}, "(Mrs. Fox and Prof. Hen)|\n\nHe"},
    {"for example", {1, sentences}, "Fruit, e.g. Apples, i.e. Red ones.| He"},
    {"initials", {1, sentences}, "J. R. R. Smith and J.R.R. Fox.| He"},
    {"a state", {1, sentences}, "In the U.S. Army.| He"},
    {"the word I", {1, sentences}, "So am I.| He"},
    {"no, and number 5", {1, sentences}, "See No. 5 on p. 7 of Jan. 3.| He"},
    {"no as a sentence", {1, sentences}, "No.| He left."},
    {"in the afternoon", {1, sentences}, "It was 5 p.m. in town at 6 p.m.| He"},
    {"a list has a number", {1, sentences}, "\n1. Eat.| 2. Sleep."},
    {"the text begins with a list", {1, sentences}, "1. Eat.| 2. Sleep."},
    {"the text begins with a sentence's last word", {1, sentences}, " 1.| He slept."},
    {"a number ends a sentence", {1, sentences}, " was 5.| He"},
    {"three dots in a sentence", {1, sentences}, "Well... maybe.| He"},
    {"three dots at its end", {1, sentences}, "Well...| He"},
    {"three dots with spaces", {1, sentences}, "Well. . . and so.| He"},
    {"one sign of three dots", {1, sentences}, "Well… maybe…| He"},
    {"dots alone are no sentence", {1, sentences}, "... He ran.| He"},
    {"a quote closes behind the stop", {1, sentences}, "\"Run.\"| He"},
    {"a curved quote", {1, sentences}, "“He said.”| He"},
    {"a quote in a quote", {1, sentences}, "“‘Run!’”| He"},
    {"a quote that he said", {1, sentences}, "“Run!” he said.| He"},
    {"a quote begins the next one", {1, sentences}, "He ran.| “Run!”"},
    {"brackets and stars", {1, sentences}, "*(He ran.)*| He"},
    {"guillemets", {1, sentences}, "«Cours.»| Il"},
    {"guillemets with spaces", {1, sentences}, "« Cours ! »| Il"},
    {"guillemets with narrow spaces", {1, sentences}, "Cours\u202F!\u202F»| Il"},
    {"guillemets turned round", {1, sentences}, "»Lauf.«| Er"},
    {"guillemets turned round begin", {1, sentences}, "Er lief.| »Lauf.«"},
    {"low quotes", {1, sentences}, "„Lauf.“| Er"},
    {"an ideographic stop", {1, sentences}, "彼は走った。|次に"},
    {"its brackets", {1, sentences}, "「走れ！」|次に"},
    {"its brackets, he said", {1, sentences}, "「走れ！」と言った。|次に"},
    {"its question", {2, sentences}, "走？！ 走！|走"},
    {"a line break behind a stop", {1, sentences}, "He ran.|\nHe"},
    {"a line break in a sentence", {1, sentences}, "He\nran.| He"},
    {"a blank line ends a heading", {1, sentences}, "\n\nChapter 1| \n\nHe"},
    {"a blank line and sentences", {2, sentences}, "Chapter 1\n\nHe ran.| He"},
    {"a paragraph", {1, paragraphs}, " He ran. He fell.|\nHe"},
    {"spaces behind a paragraph", {1, paragraphs}, "He ran.| \r\nHe"},
    {"a paragraph behind line breaks", {1, paragraphs}, "\n\nHe ran.|\n\n"},
    {"a blank line counts once", {2, paragraphs}, "He ran.\n\nHe fell.|\n"},
    {"a paragraph that goes on", {1, paragraphs}, "He ran. He fell. "},
    {"no limit", {}, "He ran. He fell.\n\nHe"},
};
// clang-format on

// What is streamed of the text, in pieces of n bytes; | behind it if it has ended.
static std::string streamed(const std::string & text, size_t n, const passage_limit & limit) {
    stop_matcher stream(nullptr, false, limit);
    std::string  found;
    for (size_t i = 0; i < text.size() && !stream.stopped(); i += n) {
        found += stream.feed(text.substr(i, n));
    }
    return found + (stream.stopped() ? "|" : stream.finish());
}

static void run(const passage_row & row) {
    const std::string marked = row.text;
    const size_t      end    = marked.find('|');
    std::string       text   = marked;
    if (end != std::string::npos) {
        text.erase(end, 1);
    }
    const std::string expected = end == std::string::npos ? text : marked.substr(0, end + 1);
    for (const size_t n : {size_t(1), size_t(2), size_t(3), size_t(7), text.size()}) {
        expect_equal(expected, streamed(text, n, row.limit), "in pieces of " + std::to_string(n));
    }
}

static void run_together() {
    auto         stops = std::make_shared<const word_finder>(std::vector<std::string>{"fell", "He "});
    stop_matcher first(stops, false, {2, sentences});
    expect_equal(" Go. ", first.feed(" Go. He ran. "), "a stop string ends the text before the passages");
    expect_equal("He ", *first.stop_text());
    stop_matcher second(std::make_shared<const word_finder>(std::vector<std::string>{". She"}), false,
                        {1, sentences});
    expect_equal(" He ran.", second.feed(" He ran. S"), "the passage is complete first");
    expect(!second.stop_text() && second.passage(), "no stop string ended the text");
    stop_matcher third(nullptr, false, {1, sentences});
    expect_equal(" Go. He ran. So he fell.",
                 third.feed(" Go. He ran.", false) + third.feed(" So he fell. Then"),
                 "what may not stop counts for nothing");
}

void add_passage_cases(std::vector<test_case> & cases) {
    for (const passage_row & row : table) {
        cases.push_back({"end, " + std::string(row.name), [&row] { run(row); }});
    }
    cases.push_back({"end, stop strings and a least length", run_together});
}
