package org.adon.pegasus;

import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * ADON's answer as its lines come in: {@code job<TAB>site} for every job, in any order, and where
 * it has one {@code <TAB>priority} behind it; then {@code end<TAB>count<TAB>policy<TAB>makespan}. For a large workflow a first mapping may come before, of
 * the same form but with {@code so far} in place of {@code end}. One bad line and nothing after it
 * counts.
 */
final class Answer {

    private static final String LAST = "end";
    private static final String FIRST = "so far";

    private final List<Task> tasks;
    private final Map<String, Integer> index = new HashMap<String, Integer>();
    private String[] sites;
    private Integer[] priorities;
    private int count;
    private volatile Mapping latest;

    /** A site for each task, and what the log says of it. */
    static final class Mapping {
        final List<String> sites;

        /** Null where a job keeps the one it has. */
        final List<Integer> priorities;

        final String policy;

        /** Seconds, NaN where it said none. */
        final double makespan;

        /** Whether nothing more was to come. */
        final boolean last;

        Mapping(
                List<String> sites,
                List<Integer> priorities,
                String policy,
                double makespan,
                boolean last) {
            this.sites = sites;
            this.priorities = priorities;
            this.policy = policy;
            this.makespan = makespan;
            this.last = last;
        }
    }

    Answer(List<Task> tasks) throws Refusal {
        this.tasks = tasks;
        this.sites = new String[tasks.size()];
        this.priorities = new Integer[tasks.size()];
        for (int i = 0; i < tasks.size(); i++) {
            if (index.put(tasks.get(i).id, i) != null) {
                throw new Refusal("two jobs have the id " + Words.line(tasks.get(i).id));
            }
        }
    }

    /**
     * Takes the next line; returns whether it was the last one.
     *
     * @throws Refusal where it is not what was expected
     */
    boolean line(String line) throws Refusal {
        String[] fields = line.split("\t", -1);
        if (fields.length == 4 && (fields[0].equals(LAST) || fields[0].equals(FIRST))) {
            return whole(fields, line);
        }
        boolean placed = fields.length == 2 || fields.length == 3;
        Integer task = placed ? index.get(unescaped(fields[0])) : null;
        if (task == null) {
            throw new Refusal("it answered " + quoted(line) + ", which is no job and site");
        }
        String site = unescaped(fields[1]);
        Task about = tasks.get(task);
        if (!about.sites.contains(site)) {
            throw new Refusal("it placed job " + Words.line(about.id) + " at " + quoted(site)
                    + ", which is none of " + Words.line(about.sites.toString()));
        }
        if (sites[task] != null) {
            throw new Refusal("it placed job " + Words.line(about.id) + " twice");
        }
        if (fields.length == 3) {
            try {
                priorities[task] = Integer.valueOf(fields[2]);
            } catch (NumberFormatException error) {
                throw new Refusal("it answered " + quoted(line) + ", which has no priority");
            }
        }
        sites[task] = site;
        count++;
        return false;
    }

    private boolean whole(String[] fields, String line) throws Refusal {
        if (!fields[1].equals(Integer.toString(count)) || count != sites.length) {
            throw new Refusal("it ended with " + quoted(line) + " after " + state());
        }
        double makespan;
        try {
            makespan = Double.parseDouble(fields[3]);
        } catch (NumberFormatException error) {
            makespan = Double.NaN; // for the log only
        }
        boolean last = fields[0].equals(LAST);
        latest = new Mapping(Arrays.asList(sites), Arrays.asList(priorities),
                Words.line(fields[2]), makespan, last);
        sites = new String[tasks.size()];
        priorities = new Integer[tasks.size()];
        count = 0;
        return last;
    }

    /** The latest whole mapping, null without one. */
    Mapping latest() {
        return latest;
    }

    /** How far the present one came. */
    String state() {
        return count + " of " + tasks.size() + " jobs";
    }

    private static String quoted(String text) {
        String line = Words.line(text);
        return "'" + (line.length() > 80 ? line.substring(0, 80) + "…" : line) + "'";
    }

    private static String unescaped(String text) {
        if (text.indexOf('\\') < 0) {
            return text;
        }
        StringBuilder out = new StringBuilder();
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c == '\\' && i + 1 < text.length()) {
                char next = text.charAt(++i);
                out.append(next == 't' ? '\t' : next == 'n' ? '\n' : next == 'r' ? '\r' : next);
            } else {
                out.append(c);
            }
        }
        return out.toString();
    }
}
