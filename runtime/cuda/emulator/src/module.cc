#include "module.h"

#include <cctype>
#include <cstdlib>

namespace emulator {

namespace {

bool isNameChar(char c) { return isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$'; }

// The text without comments.
std::string codeOf(const std::string &ptx) {
    std::string code;
    for (size_t i = 0; i < ptx.size(); i++) {
        const bool line = ptx.compare(i, 2, "//") == 0, block = ptx.compare(i, 2, "/*") == 0;
        if (!line && !block) {
            code += ptx[i];
            continue;
        }
        const size_t end = ptx.find(line ? "\n" : "*/", i + 2);
        if (end == std::string::npos) break;
        i = end + (line ? 0 : 1);
        code += '\n';
    }
    return code;
}

} // namespace

bool endsAsText(const std::string &ptx) {
    const std::string code = codeOf(ptx);
    const size_t last = code.find_last_not_of(" \t\r\n");
    return last != std::string::npos && (code[last] == '}' || code[last] == ';');
}

bool runsOn(int capability, const std::string &ptx) {
    static const std::string word = ".target sm_";
    const std::string code = codeOf(ptx);
    const size_t at = code.find(word);
    if (at == std::string::npos) return true;
    char *end;
    const long needs = strtol(code.c_str() + at + word.size(), &end, 10);
    return *end == 'a' ? capability == needs : capability >= needs;
}

std::vector<std::string> entriesOf(const std::string &ptx) {
    static const std::string word = ".entry";
    const std::string code = codeOf(ptx);
    std::vector<std::string> names;
    for (size_t at = code.find(word); at != std::string::npos; at = code.find(word, at)) {
        at += word.size();
        if (at >= code.size() || !isspace(static_cast<unsigned char>(code[at]))) continue;
        while (at < code.size() && isspace(static_cast<unsigned char>(code[at]))) at++;
        const size_t first = at;
        while (at < code.size() && isNameChar(code[at])) at++;
        if (at > first) names.push_back(code.substr(first, at - first));
    }
    return names;
}

} // namespace emulator
