package org.adon.pegasus;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;

/**
 * The built-in rule, for when ADON does not answer: a job goes where most of its input lies, but no
 * site takes more than its share of the jobs of a level. Deterministic, and it fails nowhere where a
 * site can run the job. Jobs that have to stay together go where the first of them goes.
 */
final class Rule {

    private static final long UNKNOWN_BYTES = 1000000;

    private final Work work;
    private final String[] chosen;
    private final int[] level;
    private final int[] writer;
    private final Map<Integer, Integer> width = new HashMap<Integer, Integer>();
    private final Map<String, int[]> load = new HashMap<String, int[]>();
    private int deepest;

    private Rule(Work work) {
        this.work = work;
        this.chosen = new String[work.tasks.size()];
        this.level = new int[work.tasks.size()];
        this.writer = new int[work.files.size()];
        Arrays.fill(writer, -1);
    }

    /** The site of each task. */
    static List<String> map(Work work) {
        return new Rule(work).run();
    }

    private List<String> run() {
        List<Integer> order = order();
        for (int task : order) {
            width.merge(level[task], 1, Integer::sum);
            deepest = Math.max(deepest, level[task]);
            for (int file : work.tasks.get(task).writes) {
                writer[file] = task;
            }
        }
        Map<Integer, List<Integer>> together = together();
        for (int task : order) {
            if (chosen[task] != null) {
                continue;
            }
            List<Integer> bound = together.get(task);
            String site = choose(task, bound == null ? work.tasks.get(task).sites
                    : common(bound));
            for (int other : bound == null ? Collections.singletonList(task) : bound) {
                Task about = work.tasks.get(other);
                boolean can = about.sites.contains(site);
                chosen[other] = can ? site : choose(other, about.sites);
                loadOf(chosen[other])[level[other]]++;
            }
        }
        return Arrays.asList(chosen);
    }

    /** Parents before children. What a cycle holds back comes last, in the order it has. */
    private List<Integer> order() {
        int count = work.tasks.size();
        int[] waiting = new int[count];
        List<List<Integer>> children = new ArrayList<List<Integer>>(count);
        for (int i = 0; i < count; i++) {
            children.add(new ArrayList<Integer>(2));
        }
        for (int i = 0; i < count; i++) {
            for (int parent : work.tasks.get(i).parents) {
                children.get(parent).add(i);
                waiting[i]++;
            }
        }
        ArrayDeque<Integer> ready = new ArrayDeque<Integer>();
        for (int i = 0; i < count; i++) {
            if (waiting[i] == 0) {
                ready.add(i);
            }
        }
        LinkedHashMap<Integer, Boolean> order = new LinkedHashMap<Integer, Boolean>();
        while (!ready.isEmpty()) {
            int task = ready.remove();
            order.put(task, true);
            for (int child : children.get(task)) {
                level[child] = Math.max(level[child], level[task] + 1);
                if (--waiting[child] == 0) {
                    ready.add(child);
                }
            }
        }
        for (int i = 0; i < count; i++) {
            order.put(i, true);
        }
        return new ArrayList<Integer>(order.keySet());
    }

    /** For every task that has company (by group or cluster, also in chains of both), all of it. */
    private Map<Integer, List<Integer>> together() {
        int[] leader = new int[work.tasks.size()];
        Map<String, Integer> first = new HashMap<String, Integer>();
        for (int i = 0; i < leader.length; i++) {
            leader[i] = i;
            Task task = work.tasks.get(i);
            String[] names = {
                task.group == null ? null : "g" + task.group,
                task.cluster == null ? null : "c" + task.cluster,
            };
            for (String name : names) {
                Integer other = name == null ? null : first.putIfAbsent(name, i);
                if (other != null) {
                    leader[find(leader, i)] = find(leader, other);
                }
            }
        }
        Map<Integer, List<Integer>> sets = new HashMap<Integer, List<Integer>>();
        for (int i = 0; i < leader.length; i++) {
            int root = find(leader, i);
            if (!sets.containsKey(root)) {
                sets.put(root, new ArrayList<Integer>(1));
            }
            sets.get(root).add(i);
        }
        Map<Integer, List<Integer>> found = new HashMap<Integer, List<Integer>>();
        for (List<Integer> set : sets.values()) {
            if (set.size() > 1) {
                for (int task : set) {
                    found.put(task, set);
                }
            }
        }
        return found;
    }

    private static int find(int[] leader, int task) {
        int root = task;
        while (leader[root] != root) {
            root = leader[root];
        }
        leader[task] = root;
        return root;
    }

    /** Sites that all of them can run at; where there are none, those of the first. */
    private List<String> common(List<Integer> tasks) {
        TreeSet<String> sites = new TreeSet<String>(work.tasks.get(tasks.get(0)).sites);
        for (int task : tasks) {
            sites.retainAll(work.tasks.get(task).sites);
        }
        return sites.isEmpty() ? work.tasks.get(tasks.get(0)).sites : new ArrayList<String>(sites);
    }

    private String choose(int task, List<String> sites) {
        int at = level[task];
        int share = (width.get(at) + sites.size() - 1) / sites.size();
        Map<String, Long> here = bytesAt(task);
        String best = null;
        for (String site : sites) {
            if (best == null || better(site, best, at, share, here)) {
                best = site;
            }
        }
        return best;
    }

    private boolean better(String site, String than, int at, int share, Map<String, Long> here) {
        int mine = loadOf(site)[at];
        int other = loadOf(than)[at];
        if (mine >= share != other >= share) {
            return mine < share;
        }
        long bytes = here.containsKey(site) ? here.get(site) : 0;
        long others = here.containsKey(than) ? here.get(than) : 0;
        return bytes != others ? bytes > others : mine < other;
    }

    private Map<String, Long> bytesAt(int task) {
        Map<String, Long> found = new HashMap<String, Long>();
        for (int index : work.tasks.get(task).reads) {
            Data file = work.files.get(index);
            long size = file.size < 0 ? UNKNOWN_BYTES : Math.min(file.size, 1L << 50) + 1;
            if (writer[index] >= 0 && chosen[writer[index]] != null) {
                found.merge(chosen[writer[index]], size, Long::sum);
            }
            for (String[] place : file.places) {
                found.merge(place[0], size, Long::sum);
            }
        }
        return found;
    }

    private int[] loadOf(String site) {
        int[] found = load.get(site);
        if (found == null) {
            found = new int[deepest + 1];
            load.put(site, found);
        }
        return found;
    }
}
