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

// Names of hosts of at most n labels, each with at most 2 * pairs + 1 characters.
static std::string hosts(int n, int pairs) {
    const std::string label = "[A-Za-z0-9](-?[A-Za-z0-9]){0," + std::to_string(pairs) + "}";
    return label + "(\\." + label + "){0," + std::to_string(n - 1) + "}";
}

// A whole name has at most 253 characters, behind a mailbox of 64 at most 189: few long labels, or more shorter ones. To
// count all characters would take a state for each of them at each place.
static const std::string hostname = "(" + hosts(4, 30) + "|" + hosts(7, 17) + "|" + hosts(12, 9) + ")";
static const std::string email =
    "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,32}(\\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,15})"
    "{0,2}@(" +
    hosts(3, 30) + "|" + hosts(6, 14) + "|" + hosts(9, 9) + ")";

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

static const std::string path_c   = "([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})";
static const std::string no_colon = "([A-Za-z0-9._~!$&'()*+,;=@-]|%[0-9A-Fa-f]{2})";
static const std::string user     = "(([A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*@)?";
static const std::string server = "(\\[" + make_ipv6() + "\\]|([A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*)";
static const std::string around = "//" + user + server + "(:\\d{0,5})?(/" + path_c + "*)*";
static const std::string behind = "(\\?(" + path_c + "|[/?])*)?(#(" + path_c + "|[/?])*)?";
static const std::string rooted = "/(" + path_c + "+(/" + path_c + "*)*)?";
static const std::string uri =
    "[A-Za-z][A-Za-z0-9+.-]*:(" + around + "|" + rooted + "|" + path_c + "+(/" + path_c + "*)*)?" + behind;
static const std::string relative =
    "(" + around + "|" + rooted + "|" + no_colon + "+(/" + path_c + "*)*)?" + behind;

static const std::string pointer = "(/([^~/]|~[01])*)*";
// Expressions of characters, classes and groups that are not within each other.
static const std::string repeated = "([*+?]|\\{\\d{1,3}\\}|\\{\\d{1,2},\\}|\\{\\d,[1-9]\\d\\})?";
static const std::string piece    = "([A-Za-z0-9 _.,:;@%&=<>~#!'\"/-]|\\\\[dwsDWS.\\\\/]|"
                                    "\\[\\^?(a-z|A-Z|0-9|[A-Za-z0-9_ .@%+])+\\])" +
                                    repeated;
static const std::string expression =
    "(" + piece + "|\\((\\?:)?(" + piece + "|\\|)*\\)" + repeated + "|[$^|])*";
static const std::string uuid = "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}";
static const std::string uri_template =
    "([A-Za-z0-9._~!$&()*+,;=:@/?#-]|%[0-9A-Fa-f]{2}|\\{[A-Za-z0-9_]+\\})*";

const format_row * find_format(const std::string & name) {
    const auto whole = [](const std::string & pattern) { return "^(" + pattern + ")$"; };
    const auto exact = [&](const char * of, const std::string & pattern) {
        return format_row{of, whole(pattern), whole(pattern)};
    };
    const std::string scheme = "^[A-Za-z][A-Za-z0-9+.-]*:", reference = uri + "|" + relative;
    static const std::vector<format_row> rows = {
        exact("date", date),
        {"time", whole(clock_s), "^\\d\\d:\\d\\d:\\d\\d"},
        {"date-time", whole(date + "[Tt]" + clock_s), "^\\d{4}-\\d\\d-\\d\\d[Tt ]"},
        {"duration", whole(duration), "^P"},
        {"email", whole(email), "@"},
        {"idn-email", whole(email), "@"},
        {"hostname", whole(hostname), "^[A-Za-z0-9.-]+$"},
        {"idn-hostname", whole(hostname), "^\\S+$"},
        {"host-name", whole(hostname), "^[A-Za-z0-9.-]+$"},
        exact("ipv4", ipv4),
        exact("ip-address", ipv4),
        exact("ipv6", make_ipv6()),
        {"uri", whole(uri), scheme},
        {"iri", whole(uri), scheme},
        {"uri-reference", whole(reference), ""},
        {"iri-reference", whole(reference), ""},
        {"uri-template", whole(uri_template), ""},
        exact("uuid", uuid),
        exact("json-pointer", pointer),
        {"relative-json-pointer", whole("(0|[1-9]{1,8})(#|" + pointer + ")"), "^\\d"},
        {"regex", whole(expression), ""},
    };
    for (const format_row & row : rows) {
        if (row.name == name) {
            return &row;
        }
    }
    return nullptr;
}
