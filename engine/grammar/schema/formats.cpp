#include "grammar/schema/formats.h"

#include <vector>

static const std::string year = "(\\d{3}[1-9]|\\d{2}[1-9]0|\\d[1-9]00|[1-9]000)";
static const std::string leap =
    "((\\d\\d)(0[48]|[2468][048]|[13579][26])|([02468][48]|[2468]0|[13579][26])00)";
static const std::string day_long = "(0[1-9]|[12]\\d|3[01])";
static const std::string day_some = "(0[1-9]|[12]\\d|30)";
static const std::string day_feb  = "(0[1-9]|1\\d|2[0-8])";
static const std::string date = "(" + year + "-((0[13578]|1[02])-" + day_long + "|(0[469]|11)-" + day_some +
                                "|02-" + day_feb + ")|" + leap + "-02-29)";
static const std::string hour = "([01]\\d|2[0-3])";
static const std::string clock_s = hour + ":[0-5]\\d:[0-5]\\d(\\.\\d{1,9})?([Zz]|[+-]" + hour + ":[0-5]\\d)";

static const std::string time_part = "T(\\d+H(\\d+M(\\d+S)?)?|\\d+M(\\d+S)?|\\d+S)";
static const std::string day_part  = "(\\d+D|\\d+M(\\d+D)?|\\d+Y(\\d+M(\\d+D)?)?)";
static const std::string duration  = "P(" + day_part + "(" + time_part + ")?|" + time_part + "|\\d+W)";

// A label of at most n characters; no -- behind its second one, which would be a code.
static std::string label(int n) {
    const std::string any = "[A-Za-z0-9-]", end = "[A-Za-z0-9]";
    return "(" + end + "(" + any + "{0,2}" + end + ")?|" + end + any + "(" + end + any + "|-" + end + ")" +
           any + "{0," + std::to_string(n - 5) + "}" + end + ")";
}

// Names of hosts of at most n labels.
static std::string hosts(int n, const std::string & one, const std::string & dot = "\\.") {
    return one + "(" + dot + one + "){0," + std::to_string(n - 1) + "}";
}

// A whole name has at most 253 characters, behind a mailbox of 64 at most 189: few long labels, or more shorter ones. To
// count all characters would take a state for each of them at each place.
static const std::string hostname =
    hosts(3, label(63)) + "|" + hosts(4, label(62)) + "|" + hosts(7, label(35)) + "|" + hosts(12, label(20));
static const std::string mail_hosts =
    hosts(3, label(62)) + "|" + hosts(6, label(30)) + "|" + hosts(9, label(20));

// Letters beyond ASCII of which each text is a label: small ones that are written from left to right, none that joins
// others. Nine of them, with hyphens, are at most 63 characters as a code.
static const std::string letters =
    "[a-z0-9\u00df-\u00f6\u00f8-\u00ff\u03ac-\u03ce\u0430-\u045f\u3041-\u3096\u30a1-\u30fa"
    "\u4e00-\u9fff\uac00-\ud7a3]";
static const std::string any_label = letters + "(-?" + letters + "){0,8}";

// Characters beyond ASCII that RFC 3987 allows in an address, without those of a host's name.
static const std::string beyond =
    "\u00a0-\ud7ff\uf900-\ufdcf\ufdf0-\uffef\U00010000-\U0001fffd\U00020000-\U0002fffd";

// The local part in plain characters, of which `more` are some, or in quotes.
static std::string mailbox(const std::string & more) {
    const std::string plain = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~" + more + "-]";
    return "(" + plain + "{1,64}|" + plain + "{1,32}(\\." + plain + "{1,15}){0,2}|\"[A-Za-z0-9 !#-\\[\\]-~" +
           more + "]{1,62}\")";
}

static const std::string octet = "(\\d|[1-9]\\d|1\\d\\d|2[0-4]\\d|25[0-5])";
static const std::string ipv4  = octet + "\\." + octet + "\\." + octet + "\\." + octet;
static const std::string hex4  = "[0-9A-Fa-f]{1,4}";

static std::string make_ipv6() {
    const std::string last = "(" + hex4 + ":" + hex4 + "|" + ipv4 + ")"; // two groups
    std::string       out  = "((" + hex4 + ":){6}" + last;
    for (int before = 0; before <= 7; before++) { // groups before ::
        const std::string head =
            before == 0 ? "" : "(" + hex4 + ":){" + std::to_string(before - 1) + "}" + hex4;
        const int room = 7 - before; // groups that may follow
        out += "|" + head + "::";
        if (room > 0) {
            const std::string most = std::to_string(room - 1);
            out += "((" + hex4 + ":){0," + most + "}" + hex4;
            if (room > 1) {
                out += "|(" + hex4 + ":){0," + std::to_string(room - 2) + "}" + ipv4;
            }
            out += ")?";
        }
    }
    return out + ")";
}

struct addresses {
    std::string whole, relative;
};

// Addresses in which also the characters of `more` may stand.
static addresses make_addresses(const std::string & more) {
    const std::string kept = "[A-Za-z0-9._~!$&'()*+,;=" + more, coded = "|%[0-9A-Fa-f]{2})";
    const std::string path_c = "(" + kept + ":@-]" + coded, no_colon = "(" + kept + "@-]" + coded;
    const std::string user   = "((" + kept + ":-]" + coded + "*@)?";
    const std::string server = "(\\[" + make_ipv6() + "\\]|(" + kept + "-]" + coded + "*)";
    const std::string around = "//" + user + server + "(:\\d{0,5})?(/" + path_c + "*)*";
    const std::string behind = "(\\?(" + path_c + "|[/?])*)?(#(" + path_c + "|[/?])*)?";
    const std::string rooted = "/(" + path_c + "+(/" + path_c + "*)*)?", rest = "+(/" + path_c + "*)*)?";
    return {"[A-Za-z][A-Za-z0-9+.-]*:(" + around + "|" + rooted + "|" + path_c + rest + behind,
            "(" + around + "|" + rooted + "|" + no_colon + rest + behind};
}

static const std::string pointer = "(/([^~/]|~[01])*)*";
// Expressions of characters, classes and groups that are not within each other.
static const std::string repeated = "([*+?]|\\{\\d{1,3}\\}|\\{\\d{1,2},\\}|\\{\\d,[1-9]\\d\\})?";
static const std::string piece    = "([A-Za-z0-9 _.,:;@%&=<>~#!'\"/-]|\\\\[dwsDWS.\\\\/]|"
                                    "\\[\\^?(a-z|A-Z|0-9|[A-Za-z0-9_ .@%+])+\\])" +
                                    repeated;
static const std::string expression =
    "(" + piece + "|\\((\\?:)?(" + piece + "|\\|)*\\)" + repeated + "|[$^|])*";
static const std::string uuid = "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}";
static const std::string var_char     = "([A-Za-z0-9_]|%[0-9A-Fa-f]{2})";
static const std::string variable     = var_char + "(\\.?" + var_char + ")*(:[1-9]\\d{0,3}|\\*)?";
static const std::string uri_template = "([A-Za-z0-9._~!$&'()*+,;=:@/?#\\[\\]" + beyond +
                                        "-]|%[0-9A-Fa-f]{2}|\\{[+#./;?&]?" + variable + "(," + variable +
                                        ")*\\})*";

const format_row * find_format(const std::string & name) {
    const auto whole = [](const std::string & pattern) { return "^(" + pattern + ")$"; };
    const auto exact = [&](const char * of, const std::string & pattern) {
        return format_row{of, whole(pattern), whole(pattern)};
    };
    const auto email = [](const std::string & more, const std::string & hosts) {
        return mailbox(more) + "@(" + hosts + ")";
    };
    const std::string                    scheme = "^[A-Za-z][A-Za-z0-9+.-]*:";
    static const addresses               uri = make_addresses(""), iri = make_addresses(beyond);
    static const std::vector<format_row> rows = {
        exact("date", date),
        {"time", whole(clock_s), "^\\d\\d:\\d\\d:\\d\\d"},
        {"date-time", whole(date + "[Tt]" + clock_s), "^\\d{4}-\\d\\d-\\d\\d[Tt ]"},
        {"duration", whole(duration), "^P"},
        {"email", whole(email("", mail_hosts + "|\\[(" + ipv4 + "|IPv6:" + make_ipv6() + ")\\]")), "@"},
        {"idn-email", whole(email(beyond, mail_hosts + "|" + hosts(3, any_label))), "@"},
        {"hostname", whole(hostname), "^[A-Za-z0-9.-]+$"},
        {"idn-hostname", whole(hostname + "|" + hosts(4, any_label, "[.\u3002\uff0e\uff61]")), "^\\S+$"},
        {"host-name", whole(hostname), "^[A-Za-z0-9.-]+$"},
        exact("ipv4", ipv4),
        exact("ip-address", ipv4),
        exact("ipv6", make_ipv6()),
        {"uri", whole(uri.whole), scheme},
        {"iri", whole(iri.whole), scheme},
        {"uri-reference", whole(uri.whole + "|" + uri.relative), ""},
        {"iri-reference", whole(iri.whole + "|" + iri.relative), ""},
        {"uri-template", whole(uri_template), ""},
        exact("uuid", uuid),
        exact("json-pointer", pointer),
        {"relative-json-pointer", whole("(0|[1-9]{1,7}0?)(#|" + pointer + ")"), "^\\d"},
        {"regex", whole(expression), ""},
    };
    for (const format_row & row : rows) {
        if (row.name == name) {
            return &row;
        }
    }
    return nullptr;
}
