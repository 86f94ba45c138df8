package org.adon.pegasus;

import java.util.ArrayList;
import java.util.List;

/** A command line as one property holds it, and texts cut to fit a log line. */
final class Words {

    private Words() {}

    /**
     * Splits at white space. Double or single quotes hold blanks together; inside double quotes a
     * backslash takes the next quote or backslash as it is. Nothing is expanded.
     *
     * @throws Refusal where a quote does not end
     */
    static List<String> split(String command) throws Refusal {
        List<String> words = new ArrayList<String>();
        StringBuilder word = null;
        char quote = 0;
        for (int i = 0; i < command.length(); i++) {
            char c = command.charAt(i);
            if (quote == 0 && Character.isWhitespace(c)) {
                if (word != null) {
                    words.add(word.toString());
                }
                word = null;
                continue;
            }
            word = word == null ? new StringBuilder() : word;
            if (quote == 0 && (c == '"' || c == '\'')) {
                quote = c;
            } else if (c == quote) {
                quote = 0;
            } else if (c == '\\' && quote == '"' && i + 1 < command.length()
                    && "\"\\".indexOf(command.charAt(i + 1)) >= 0) {
                word.append(command.charAt(++i));
            } else {
                word.append(c);
            }
        }
        if (quote != 0) {
            throw new Refusal("a quote does not end in the command: " + line(command));
        }
        if (word != null) {
            words.add(word.toString());
        }
        return words;
    }

    /** One line of at most 300 characters without control characters. */
    static String line(String text) {
        StringBuilder out = new StringBuilder();
        for (int i = 0; i < text.length() && out.length() < 300; i++) {
            char c = text.charAt(i);
            out.append(Character.isISOControl(c) ? ' ' : c);
        }
        return out.toString().trim();
    }

    /** A time for a reader: {@code 45.2 s}, {@code 12.5 min}, {@code 3.1 h}. */
    static String time(double seconds) {
        if (seconds < 100) {
            return String.format(java.util.Locale.ROOT, "%.3g s", seconds);
        }
        boolean hours = seconds >= 6000;
        double value = seconds / (hours ? 3600 : 60);
        return String.format(java.util.Locale.ROOT, "%.1f %s", value, hours ? "h" : "min");
    }
}
