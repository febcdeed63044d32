package rekappa;

import java.util.Arrays;
import java.util.Iterator;
import java.util.NoSuchElementException;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreMap;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.array.ByteArrayMethods;
import scala.jdk.javaapi.CollectionConverters;

/**
 * One version of a state store: rows by key, their bytes one after another in pages, in the order in which keys came.
 *
 * Bytes that were written are never written over, so that a row which was given out, and the version that this one was
 * copied from, stay as they are. A copy shares the pages of its original until too much of them is dead. One thread
 * changes a version; any number may read it after that.
 *
 * Compiled by the compiler that Spark brings, which knows neither lambdas nor type inference.
 */
public final class RowsInPages implements HDFSBackedStateStoreMap {
    private static final int SMALLEST_PAGE = 1 << 14;
    private static final int LARGEST_PAGE = 1 << 20;
    private static final long FREE = 0;
    private static final long LEFT = -1L;

    /** What there is of an entry: where its key and its value are (a page's number and an offset in it), how long both
     * are (that of a removed key is negative), and its hash. */
    private static final int WIDTH = 4;
    private static final int KEY = 0;
    private static final int VALUE = 1;
    private static final int LENGTHS = 2;
    private static final int HASH = 3;

    private final int keyFields;
    private final int valueFields;

    /** Where an entry is looked for by its hash: the hash and its number plus one, LEFT by one that went, or FREE. */
    private long[] slots = new long[64];
    private int taken;

    private long[] entries = new long[32 * WIDTH];
    private int count;
    private int removed;

    private byte[][] pages = new byte[4][];
    private int pageCount;
    private byte[] page = null;
    private int filled;
    private long allBytes;
    private long liveBytes;

    public RowsInPages(int keyFields, int valueFields) {
        this.keyFields = keyFields;
        this.valueFields = valueFields;
    }

    public int size() {
        return this.count - this.removed;
    }

    public UnsafeRow get(UnsafeRow key) {
        int slot = this.find(key, key.hashCode());
        return slot < 0 ? null : this.value(this.entryAt(slot));
    }

    public UnsafeRow put(UnsafeRow key, UnsafeRow value) {
        int hash = key.hashCode();
        int slot = this.find(key, hash);
        UnsafeRow before = null;
        int entry;
        int keyLength = key.getSizeInBytes();
        int valueLength = value.getSizeInBytes();
        if (slot < 0) {
            entry = this.entered(hash, ~slot);
            this.entries[entry + KEY] = this.written(key.getBaseObject(), key.getBaseOffset(), keyLength);
            this.liveBytes += keyLength;
        } else {
            entry = this.entryAt(slot);
            before = this.value(entry);
            this.liveBytes -= this.valueLength(entry);
        }
        this.entries[entry + VALUE] = this.written(value.getBaseObject(), value.getBaseOffset(), valueLength);
        this.entries[entry + LENGTHS] = lengths(keyLength, valueLength);
        this.liveBytes += valueLength;
        return before;
    }

    public UnsafeRow remove(UnsafeRow key) {
        int slot = this.find(key, key.hashCode());
        if (slot < 0) {
            return null;
        }
        int entry = this.entryAt(slot);
        int keyLength = this.keyLength(entry);
        int valueLength = this.valueLength(entry);
        this.slots[slot] = LEFT;
        this.entries[entry + LENGTHS] = lengths(~keyLength, valueLength);
        this.liveBytes -= keyLength + valueLength;
        this.removed++;
        return this.value(entry);
    }

    public void putAll(HDFSBackedStateStoreMap other) {
        if (this.count == 0 && other instanceof RowsInPages) {
            this.copy((RowsInPages) other);
            return;
        }
        scala.collection.Iterator all = other.iterator();
        while (all.hasNext()) {
            UnsafeRowPair pair = (UnsafeRowPair) all.next();
            this.put(pair.key(), pair.value());
        }
    }

    /** The entries that are there now, but for those that are removed before their turn. */
    public scala.collection.Iterator iterator() {
        return CollectionConverters.asScala(new Entries(this, this.count * WIDTH));
    }

    public scala.collection.Iterator prefixScan(UnsafeRow prefix) {
        throw new UnsupportedOperationException("This store has no prefix");
    }

    private void copy(RowsInPages other) {
        boolean share = other.liveBytes * 2 >= other.allBytes;
        int live = other.size();
        this.entries = new long[Math.max(live + live / 4, 32) * WIDTH];
        this.slots = new long[slotsFor(live)];
        if (share) {
            this.pages = (byte[][]) Arrays.copyOf(other.pages, other.pageCount + 4);
            this.pageCount = other.pageCount;
            this.allBytes = other.allBytes;
        }
        for (int from = 0; from < other.count * WIDTH; from += WIDTH) {
            int keyLength = other.keyLength(from);
            if (keyLength < 0) {
                continue;
            }
            int hash = (int) other.entries[from + HASH];
            int entry = this.entered(hash, this.free(hash));
            this.entries[entry + KEY] = share ? other.entries[from + KEY] : this.taken(other, from + KEY, keyLength);
            int valueLength = other.valueLength(from);
            this.entries[entry + VALUE] =
                share ? other.entries[from + VALUE] : this.taken(other, from + VALUE, valueLength);
            this.entries[entry + LENGTHS] = other.entries[from + LENGTHS];
            this.liveBytes += keyLength + valueLength;
        }
    }

    private long taken(RowsInPages other, int at, int length) {
        long place = other.entries[at];
        return this.written(other.pageOf(place), offset(place), length);
    }

    /** The slot of the key; of one that is not there, the complement of the slot that it would get. */
    private int find(UnsafeRow key, int hash) {
        int mask = this.slots.length - 1;
        int slot = spread(hash) & mask;
        for (long found = this.slots[slot]; found != FREE; found = this.slots[slot]) {
            if ((int) (found >>> 32) == hash && found != LEFT && this.same(((int) found - 1) * WIDTH, key)) {
                return slot;
            }
            slot = (slot + 1) & mask;
        }
        return ~slot;
    }

    private boolean same(int entry, UnsafeRow key) {
        long place = this.entries[entry + KEY];
        int size = key.getSizeInBytes();
        return this.keyLength(entry) == size && ByteArrayMethods.arrayEquals(
            key.getBaseObject(), key.getBaseOffset(), this.pageOf(place), offset(place), size
        );
    }

    private int entryAt(int slot) {
        return ((int) this.slots[slot] - 1) * WIDTH;
    }

    /** A new entry with this hash, to be found at this free slot. */
    private int entered(int hash, int slot) {
        if (this.entries.length == this.count * WIDTH) {
            this.entries = Arrays.copyOf(this.entries, 2 * this.entries.length);
        }
        int entry = this.count * WIDTH;
        this.count++;
        this.entries[entry + HASH] = hash;
        this.slots[slot] = ((long) hash << 32) | this.count;
        this.taken++;
        if (2 * this.taken > this.slots.length) {
            this.rehash();
        }
        return entry;
    }

    private void rehash() {
        long[] before = this.slots;
        this.slots = new long[slotsFor(this.size())];
        this.taken = 0;
        for (int at = 0; at < before.length; at++) {
            if (before[at] != FREE && before[at] != LEFT) {
                this.slots[this.free((int) (before[at] >>> 32))] = before[at];
                this.taken++;
            }
        }
    }

    private int free(int hash) {
        int mask = this.slots.length - 1;
        int slot = spread(hash) & mask;
        while (this.slots[slot] != FREE) {
            slot = (slot + 1) & mask;
        }
        return slot;
    }

    private long written(Object base, long from, int length) {
        if (this.page == null || this.page.length - this.filled < length) {
            int size = this.page == null ? SMALLEST_PAGE : Math.min(2 * this.page.length, LARGEST_PAGE);
            this.page = new byte[Math.max(size, length)];
            if (this.pageCount == this.pages.length) {
                this.pages = (byte[][]) Arrays.copyOf(this.pages, 2 * this.pageCount);
            }
            this.pages[this.pageCount++] = this.page;
            this.allBytes += this.page.length;
            this.filled = 0;
        }
        Platform.copyMemory(base, from, this.page, Platform.BYTE_ARRAY_OFFSET + this.filled, length);
        long place = ((long) (this.pageCount - 1) << 32) | this.filled;
        this.filled += length;
        return place;
    }

    private UnsafeRow key(int entry) {
        int length = this.keyLength(entry);
        return this.row(this.entries[entry + KEY], length < 0 ? ~length : length, this.keyFields);
    }

    private UnsafeRow value(int entry) {
        return this.row(this.entries[entry + VALUE], this.valueLength(entry), this.valueFields);
    }

    private UnsafeRow row(long place, int length, int fields) {
        UnsafeRow found = new UnsafeRow(fields);
        found.pointTo(this.pageOf(place), offset(place), length);
        return found;
    }

    private int keyLength(int entry) {
        return (int) (this.entries[entry + LENGTHS] >> 32);
    }

    private int valueLength(int entry) {
        return (int) this.entries[entry + LENGTHS];
    }

    private byte[] pageOf(long place) {
        return this.pages[(int) (place >>> 32)];
    }

    private static long lengths(int key, int value) {
        return ((long) key << 32) | value;
    }

    private static long offset(long place) {
        return Platform.BYTE_ARRAY_OFFSET + (place & 0xffffffffL);
    }

    private static int spread(int hash) {
        return hash ^ (hash >>> 16);
    }

    private static int slotsFor(int entries) {
        int slots = 64;
        while (slots < 3L * entries) {
            slots = 2 * slots;
        }
        return slots;
    }

    private static final class Entries implements Iterator {
        private final RowsInPages rows;
        private final int end;
        private final UnsafeRowPair pair = new UnsafeRowPair(null, null);
        private int next = 0;

        Entries(RowsInPages rows, int end) {
            this.rows = rows;
            this.end = end;
            this.pass();
        }

        private void pass() {
            while (this.next < this.end && this.rows.keyLength(this.next) < 0) {
                this.next += WIDTH;
            }
        }

        public boolean hasNext() {
            return this.next < this.end;
        }

        public Object next() {
            if (this.next >= this.end) {
                throw new NoSuchElementException();
            }
            this.pair.withRows(this.rows.key(this.next), this.rows.value(this.next));
            this.next += WIDTH;
            this.pass();
            return this.pair;
        }

        public void remove() {
            throw new UnsupportedOperationException();
        }
    }
}
